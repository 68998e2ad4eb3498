#!/usr/bin/env python3
"""Kills ranks of a PyTorch gang and adds how fast it was back to target/bench/hosting.json.

    scripts/torch.sh --run scripts/bench_torch.py BINARIES OUT.json [--kills 25]

Two ranks of examples/grpo_torch train with built-in rollouts (fixtures/jobs/test-torch.toml). A rank at random is
killed (SIGKILL) so often; each kill is waited for until the gang computes again. Written are the counts, the times of
detection and of the whole recovery in milliseconds (minimum, median, maximum), what was lost or consumed twice, which
must be nothing (a check of the whole store), and the machine's load before and after.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def spread(values):
    """Minimum, median and maximum, rounded to a tenth."""
    return {"min": round(min(values), 1), "median": round(statistics.median(values), 1), "max": round(max(values), 1)}


class Run:
    """A daemon with the job, and robustctl for it."""

    def __init__(self, binaries, folder):
        self.ctl = [str(binaries / "robustctl"), "--state-dir", str(folder)]
        job = ROOT / "fixtures/jobs/test-torch.toml"
        command = [binaries / "robustd", "--job", job, "--steps", "100000", "--state-dir", folder]
        self.log = open(folder / "daemon.log", "w")
        self.daemon = subprocess.Popen(command, stdout=self.log, stderr=self.log)

    def ask(self, *words):
        done = subprocess.run([*self.ctl, *words, "--json"], capture_output=True, text=True)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def until_step(self, step):
        for _ in range(3000):
            status = self.ask("status")
            if status and status["step"] >= step:
                return status
            if self.daemon.poll() is not None:
                sys.exit(f"bench_torch: error: the job ended; see {self.log.name}")
            time.sleep(0.1)
        sys.exit(f"bench_torch: error: step {step} was not reached within 5 minutes")

    def problems(self):
        """What a check of the whole store finds wrong."""
        done = subprocess.run([*self.ctl, "store", "check", "--json"], capture_output=True, text=True)
        return json.loads(done.stdout)["problems"]

    def end(self):
        self.daemon.terminate()
        self.daemon.wait()


def main():
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("binaries", type=Path)
    words.add_argument("out", type=Path)
    words.add_argument("--kills", type=int, default=25)
    args = words.parse_args()
    if "TORCH_PYTHON" not in os.environ:
        sys.exit("bench_torch: error: TORCH_PYTHON is not set; run it by scripts/torch.sh --run")
    before, chosen = os.getloadavg()[0], random.Random(7)
    incidents = []
    with tempfile.TemporaryDirectory(prefix="robust-bench.") as folder:
        run = Run(args.binaries, Path(folder))
        try:
            step = 2
            for number in range(args.kills):
                run.until_step(step)
                reply = run.ask("inject", "--kill", "trainer", "--index", str(chosen.randrange(2)), "--wait")
                incident = (reply or {}).get("incident") or {}
                incidents.append(incident)
                total = incident.get("total_ms")
                print(f"kill {number + 1} of {args.kills}: {incident.get('outcome', 'no answer')}, {total} ms", file=sys.stderr)
                step = incident.get("step", step) + 2
            status = run.until_step(step)
            problems = run.problems()
        finally:
            run.end()
    back = [i for i in incidents if i.get("outcome") == "recovered"]
    alone = [i for i in back if i["plan"].startswith("restart the trainer gang")]
    rollouts = [role for role in status["roles"] if role["role"] == "rollout"]
    figures = {
        "pytorch_kills": args.kills,
        "pytorch_role_restarts": len(alone),
        "pytorch_detect_ms": spread([i["detect_ms"] for i in back]),
        "pytorch_total_ms": spread([i["total_ms"] for i in back]),
        "pytorch_engines_restarted": sum(role["restarts"] for role in rollouts),
        "turns_lost": status["trajectories_discarded"] + sum(not p.startswith("I-3") for p in problems),
        "double_consumed": sum(p.startswith("I-3") for p in problems),
        "pytorch_load": [round(before, 1), round(os.getloadavg()[0], 1)],
    }
    args.out.parent.mkdir(parents=True, exist_ok=True)
    known = json.loads(args.out.read_text()) if args.out.exists() else {}
    args.out.write_text(json.dumps({**known, "torch": figures}, indent=1) + "\n")
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
