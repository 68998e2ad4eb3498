"""Kills the trainer again and again and writes the distribution of every recovery stage."""
import json
import os
import statistics
import subprocess
import sys
import time

ctl, state, kills, out = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]


def call(*args):
    run = subprocess.run([ctl, "--state-dir", state, *args, "--json"], capture_output=True, text=True)
    return json.loads(run.stdout) if run.returncode == 0 else None


def until_step(step):
    while True:
        status = call("status")
        if status and status["step"] >= step:
            return status
        time.sleep(0.05)


incidents, first_load = [], os.getloadavg()
for kill in range(kills):
    before = until_step((incidents[-1]["step"] + 1) if incidents else 2)
    reply = call("inject", "--kill", "trainer", "--index", str(kill % 2), "--wait")
    if reply is None:
        sys.exit(f"kill {kill} did not recover")
    incidents.append(reply["incident"])
    print(f"kill {kill + 1}/{kills} at step {before['step']}: {reply['incident']['total_ms']:.0f} ms", flush=True)


def spread(values):
    values = sorted(values)
    return {"median": statistics.median(values), "min": values[0], "max": values[-1]}


stages = {}
for incident in incidents:
    for stage in incident["stages"]:
        stages.setdefault(stage["name"], []).append(stage["ms"])
result = {
    "kills": kills,
    "role_restarts": sum(i["plan"].startswith("restart the trainer gang") for i in incidents),
    **{part: spread([i[part] for i in incidents]) for part in ("detect_ms", "restart_ms", "reconnect_ms", "total_ms")},
    "stages": {name: spread(ms) for name, ms in stages.items()},
    "load_before": first_load,
    "load_after": os.getloadavg(),
    "cores": os.cpu_count(),
}
with open(out, "w") as file:
    json.dump(result, file, indent=2)
print(json.dumps(result, indent=2))
