"""Kills the trainer again and again and writes the distribution of every recovery stage; then kills
rollouts of the same job while it waits, so that an exit's own time shows without the job's load."""
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import time

ctl, state, kills, out = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
# Short rounds: agent workers that stay stopped for a rule's window are replaced.
IDLE_ROUNDS, IDLE_KILLS = 8, 3
most_spares = 0


def call(*args):
    run = subprocess.run([ctl, "--state-dir", state, *args, "--json"], capture_output=True, text=True)
    return json.loads(run.stdout) if run.returncode == 0 else None


def until(holds):
    deadline = time.monotonic() + 300  # the first run makes the warm start
    while time.monotonic() < deadline:
        status = call("status")
        if status and holds(status):
            return status
        time.sleep(0.05)
    sys.exit("robustd did not come so far within 300 s; is it running?")


def until_step(step):
    """And until as many spares are ready as there ever were, where the job has any."""
    global most_spares

    def holds(status):
        global most_spares
        ready = sum(spare["ready"] for spare in status.get("spares", []))
        most_spares = max(most_spares, ready)
        return status["step"] >= step and ready == most_spares

    return until(holds)


def kill(role, index):
    reply = call("inject", "--kill", role, "--index", str(index), "--wait")
    if reply is None:
        sys.exit(f"the kill of {role} {index} did not recover")
    return reply["incident"]


def waits(status):
    quiet = {"trainer": lambda r: r["phase"] == "await_batch", "rollout": lambda r: r["running"] == 0}
    return all(quiet[r["role"]](r) for r in status["roles"] if r["role"] in quiet)


def idle_round():
    """With its agent workers stopped the job has nothing to do; for less than their rule's window."""
    status = until_step(call("status")["step"] + 2)
    agents = [r["pid"] for r in status["roles"] if r["role"] == "agent"]
    for pid in agents:
        os.kill(pid, signal.SIGSTOP)
    try:
        until(waits)
        return [kill("rollout", n % 3) for n in range(IDLE_KILLS)]
    finally:
        for pid in agents:
            with contextlib.suppress(ProcessLookupError):  # replaced after all
                os.kill(pid, signal.SIGCONT)


def spread(values):
    values = sorted(values)
    return {"median": statistics.median(values), "min": values[0], "max": values[-1]}


def stages(incidents):
    found = {}
    for incident in incidents:
        for stage in incident["stages"]:
            found.setdefault(stage["name"], []).append(stage["ms"])
    return {name: spread(ms) for name, ms in found.items()}


incidents, first_load = [], os.getloadavg()
for number in range(kills):
    before = until_step((incidents[-1]["step"] + 1) if incidents else 2)
    incidents.append(kill("trainer", number % 2))
    print(f"kill {number + 1}/{kills} at step {before['step']}: {incidents[-1]['total_ms']:.0f} ms", flush=True)
load_after = os.getloadavg()
idle = [incident for _ in range(IDLE_ROUNDS) for incident in idle_round()]

result = {
    "kills": kills,
    "role_restarts": sum(i["plan"].startswith("restart the trainer gang") for i in incidents),
    **{part: spread([i[part] for i in incidents]) for part in ("detect_ms", "restart_ms", "reconnect_ms", "total_ms")},
    "stages": stages(incidents),
    "load_before": first_load,
    "load_after": load_after,
    # exited: from the signal until the kernel says that the process is gone; seen: from there to the verdict.
    "exit_idle": {
        "kills": len(idle),
        "detect_ms": spread([i["detect_ms"] for i in idle]),
        **{name: stages(idle)[name] for name in ("exited", "seen")},
        "load_after": os.getloadavg(),
    },
    "cores": os.cpu_count(),
}
with open(out, "w") as file:
    json.dump(result, file, indent=2)
print(json.dumps(result, indent=2))
