#!/usr/bin/env python3
"""Measures a job with a model of Qwen3-0.6B's shape and random weights: one rank that trains, one rollout
that generates, one kill of each.

    scripts/bench_model.py DIR OUT [--worker FILE] [--model FOLDER]

DIR has robustd and robustctl, and robust-worker unless --worker names another; OUT is the JSON that is
written. The model (2.4 GB) is made in a temporary folder, or in FOLDER, where it stays. Snapshots are put
on the disk of the temporary folder (ROBUST_SHM): in memory two of them take 14.3 GB beside the rest.
It needs 16 GiB of available memory, says so where there are less, and ends the job when less than 1 GiB is left.
"""
import argparse
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
NEEDED, LEFT, GIB = 16, 1, 1 << 30
PHASES = ("old_logprob", "update", "snapshot", "publish", "load_checkpoint", "generating", "pull_weights")


def available():
    with open("/proc/meminfo") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))


def of_process(pid):
    """Bytes of a process now, that no file has, and the most it ever had with the files it maps."""
    with open(f"/proc/{pid}/status") as lines:
        fields = dict(line.rstrip().split(":", 1) for line in lines)
    return [int(fields[name].split()[0]) * 1024 for name in ("RssAnon", "VmHWM")]


class Watch(threading.Thread):
    """Looks at the memory of the roles, by their names on the command line, until it is told to end."""

    def __init__(self, daemon, ends):
        super().__init__(daemon=True)
        self.daemon_process, self.ends = daemon, ends
        self.before, self.least, self.anonymous, self.most, self.together = available(), available(), {}, {}, 0

    def run(self):
        while not self.ends.wait(0.2):
            self.least = min(self.least, available())
            together = 0
            for pid, role in self.roles():
                try:
                    anonymous, most = of_process(pid)
                except (OSError, KeyError, StopIteration):
                    continue
                together += anonymous
                self.anonymous[role] = max(self.anonymous.get(role, 0), anonymous)
                self.most[role] = max(self.most.get(role, 0), most)
            self.together = max(self.together, together)
            if self.least < LEFT * GIB:
                print("less than 1 GiB of memory is left: ending the job", file=sys.stderr)
                self.daemon_process.send_signal(signal.SIGTERM)
                return

    def roles(self):
        for entry in pathlib.Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if len(words) > 1 and words[0].endswith(b"robust-worker") and words[1] in (b"trainer", b"rollout", b"agent"):
                yield int(entry.name), words[1].decode()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dir", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--worker", type=pathlib.Path)
    parser.add_argument("--model", type=pathlib.Path)
    args = parser.parse_args()
    if available() < NEEDED * GIB:
        sys.exit(f"{available() / GIB:.1f} GiB of memory is available, {NEEDED} are needed")
    folder = pathlib.Path(tempfile.mkdtemp(prefix="robust-model."))
    try:
        result = measure(args, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


def measure(args, folder):
    worker = (args.worker or args.dir / "robust-worker").resolve()
    model = (args.model or folder / "model").resolve()
    if not (model / "model.safetensors").exists():
        shape = ROOT / "fixtures/models/qwen3-0.6b/config.json"
        subprocess.run([worker, "random-model", "--config", shape, "--out", model], check=True)
    text = (ROOT / "fixtures/jobs/qwen3-0.6b.toml").read_text()
    text = text.replace('path = "model"', f'path = "{model}"').replace('"../', f'"{ROOT}/fixtures/')
    job, state = folder / "job.toml", folder / "state"
    job.write_text(text)
    snapshots = folder / "snapshots"
    snapshots.mkdir()
    began = time.monotonic()
    with open(folder / "log", "w") as log:
        command = [args.dir / "robustd", "--job", job, "--state-dir", state, "--worker", worker, "--linger", "60"]
        daemon = subprocess.Popen(command, stdout=log, stderr=log, env=os.environ | {"ROBUST_SHM": str(snapshots)})
    ends = threading.Event()
    watch = Watch(daemon, ends)
    watch.start()
    try:
        return drive(args, state, daemon, watch, began)
    except BaseException:
        print((folder / "log").read_text()[-6000:], file=sys.stderr)
        raise
    finally:
        ends.set()
        daemon.send_signal(signal.SIGTERM)
        try:
            daemon.wait(60)
        except subprocess.TimeoutExpired:
            daemon.kill()


def drive(args, state, daemon, watch, began):
    def call(*words):
        run = subprocess.run([args.dir / "robustctl", "--state-dir", state, *words, "--json"], capture_output=True, text=True)
        return json.loads(run.stdout) if run.returncode == 0 else None

    def until(holds, what):
        while daemon.poll() is None:
            status = call("status")
            if status and holds(status):
                print(f"{time.monotonic() - began:6.1f} s  {what}: step {status['step']}", flush=True)
                return status
            time.sleep(0.2)
        sys.exit(f"robustd ended before: {what}")

    until(lambda s: s["step"] >= 1, "first step")
    first_step_s = time.monotonic() - began
    until(lambda s: s["step"] >= 2, "second step")
    kills = {}
    for role in ("rollout", "trainer"):
        reply = call("inject", "--kill", role, "--index", "0", "--wait")
        if reply is None:
            sys.exit(f"the kill of {role} did not recover")
        incident = reply["incident"]
        kills[role] = {key: incident[key] for key in ("plan", "detect_ms", "restart_ms", "reconnect_ms", "total_ms")}
        kills[role]["stages"] = {stage["name"]: stage["ms"] for stage in incident["stages"]}
        print(f"{time.monotonic() - began:6.1f} s  {role} killed, {incident['total_ms'] / 1000:.1f} s", flush=True)
    steps = until(lambda s: s["state"] in ("done", "finished", "completed", "failed"), "the end")["step"]
    report = call("report")
    history = report["history"]
    spent = {}
    for lane in history["lanes"]:
        for phase in lane["spent"]:
            if phase["phase"] in PHASES:
                spent[f"{lane['role']} {phase['phase']}"] = round(phase["ms"] / 1000, 2)
    return {
        "parameters": 596_049_920,
        "steps": steps,
        "first_step_s": round(first_step_s, 1),
        "all_s": round(time.monotonic() - began, 1),
        "seconds_of_steps": [round(line["seconds"], 1) for line in report["step_lines"]],
        "tokens": report["tokens"],
        "seconds_in_phases": spent,
        "transfers": history["transfers"],
        "kills": kills,
        "memory_gib": {
            "machine_used_at_most": round((watch.before - watch.least) / GIB, 2),
            "roles_together": round(watch.together / GIB, 2),
            "anonymous": {role: round(size / GIB, 2) for role, size in watch.anonymous.items()},
            "with_mapped_files": {role: round(size / GIB, 2) for role, size in watch.most.items()},
        },
        "load": os.getloadavg()[0],
        "cores": os.cpu_count(),
    }


main()
