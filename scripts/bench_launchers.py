#!/usr/bin/env python3
"""One training program under robustd and under torchrun, in turn; adds to target/bench/hosting.json.

    scripts/torch.sh --run scripts/bench_launchers.py BINARIES OUT.json [--kills 5] [--pairs 3]

Kills: rank 1 of two is killed (SIGKILL) while both train; the time until a step is done again is taken from the program's
own lines, the same for both. It keeps its own checkpoint, so robustd has it at level `none`. Overhead: the median time of
a step with `commit` under robustd, against the same steps under torchrun without keeping anything, in interleaved pairs.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOOP = ROOT / "scripts/bench_loop.py"


def spread(values):
    """Minimum, median and maximum, rounded to a tenth."""
    return {"min": round(min(values), 1), "median": round(statistics.median(values), 1), "max": round(max(values), 1)}


def robustd(binaries, folder, steps, keeps):
    """The program as a job of its own."""
    level = "state" if keeps == "commit" else "none"
    job = folder / "job.toml"
    argv = json.dumps([os.environ["TORCH_PYTHON"], str(LOOP), str(folder), str(steps), keeps])
    # As many deaths as are asked for are no reason to give up.
    text = f'[trainer.command]\nargv = {argv}\nlevel = "{level}"\nenv = {{ PYTHONPATH = "{ROOT}/python/src" }}\n'
    job.write_text(f"{text}[restart]\nmax = 1000\n[checkpoint]\nevery = 1000\n")
    return [str(binaries / "robustd"), "--job", str(job), "--state-dir", str(folder / "state")]


def torchrun(_, folder, steps, keeps):
    """The program as torchrun starts it."""
    launcher = [os.environ["TORCH_PYTHON"], "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    return [*launcher, "--max-restarts", "1000", str(LOOP), str(folder), str(steps), keeps]


def steps_of(folder, rank=0):
    """The steps that a rank did, and when each ended."""
    path = folder / f"steps-{rank}"
    lines = path.read_text().splitlines() if path.exists() else []
    return [(int(step), float(at)) for step, at in (line.split() for line in lines)]


def started(command, folder):
    """The launcher, its output in a file."""
    log = open(folder / "log", "w")
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}/python/src", "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, stdout=log, stderr=log, env=environment)


def until(what, done, process):
    for _ in range(6000):
        if found := done():
            return found
        if process.poll() is not None:
            sys.exit(f"bench_launchers: error: the launcher ended with {process.returncode} while waiting for {what}")
        time.sleep(0.02)
    sys.exit(f"bench_launchers: error: {what} did not come within 2 minutes")


def rank_one(folder):
    """The process that is rank 1 of the program in this folder."""
    for entry in Path("/proc").iterdir():
        try:
            line, environment = (entry / "cmdline").read_bytes(), (entry / "environ").read_bytes()
        except OSError:
            continue
        named = str(LOOP).encode() in line and str(folder).encode() in line
        if named and b"torch.distributed.run" not in line and b"\0RANK=1\0" in b"\0" + environment:
            return int(entry.name)
    return None


def kills(launcher, binaries, count):
    """Milliseconds from each kill to the next step that is done."""
    took = []
    with tempfile.TemporaryDirectory(prefix="robust-bench.") as name:
        folder = Path(name)
        process = started(launcher(binaries, folder, 1000000, "own"), folder)
        try:
            for number in range(count):
                seen = len(steps_of(folder))
                until("steps", lambda: len(steps_of(folder)) >= seen + 5, process)
                victim = until("rank 1", lambda: rank_one(folder), process)
                begun = time.time()
                os.kill(victim, signal.SIGKILL)
                new = lambda: [at for _, at in steps_of(folder) if at > begun + 0.5]  # noqa: E731
                took.append((until("a step", new, process)[0] - begun) * 1000)
                print(f"{launcher.__name__}: kill {number + 1} of {count}: {took[-1]:.0f} ms", file=sys.stderr)
        finally:
            process.terminate()
            process.wait()
    return took


def step_ms(launcher, binaries, keeps, steps=40):
    """The median time of a step, the first ones left out."""
    with tempfile.TemporaryDirectory(prefix="robust-bench.") as name:
        folder = Path(name)
        process = started(launcher(binaries, folder, steps, keeps), folder)
        if process.wait() != 0:
            sys.exit(f"bench_launchers: error: {launcher.__name__} ended with {process.returncode}:\n{(folder / 'log').read_text()[-2000:]}")
        ends = [at for _, at in steps_of(folder)][5:]
    return statistics.median(b - a for a, b in zip(ends, ends[1:])) * 1000


def main():
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("binaries", type=Path)
    words.add_argument("out", type=Path)
    words.add_argument("--kills", type=int, default=5)
    words.add_argument("--pairs", type=int, default=3)
    args = words.parse_args()
    if "TORCH_PYTHON" not in os.environ:
        sys.exit("bench_launchers: error: TORCH_PYTHON is not set; run it by scripts/torch.sh --run")
    binaries, before = args.binaries.resolve(), os.getloadavg()[0]
    ours, theirs = kills(robustd, binaries, args.kills), kills(torchrun, binaries, args.kills)
    pairs = []
    for number in range(args.pairs):
        pair = (step_ms(torchrun, binaries, "plain"), step_ms(robustd, binaries, "commit"))
        print(f"pair {number + 1} of {args.pairs}: {pair[0]:.1f} ms alone, {pair[1]:.1f} ms under robustd", file=sys.stderr)
        pairs.append(pair)
    figures = {
        "robustd_total_ms": spread(ours),
        "robustd_recovered": len(ours),
        "torchrun_total_ms": spread(theirs),
        "torchrun_recovered": len(theirs),
        "pytorch_step_alone_ms": spread([alone for alone, _ in pairs]),
        "pytorch_overhead_percent": spread([(under / alone - 1) * 100 for alone, under in pairs]),
        "launchers_load": [round(before, 1), round(os.getloadavg()[0], 1)],
    }
    args.out.parent.mkdir(parents=True, exist_ok=True)
    known = json.loads(args.out.read_text()) if args.out.exists() else {}
    args.out.write_text(json.dumps({**known, "launchers": figures}, indent=1) + "\n")
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
