#!/usr/bin/env python3
"""One training program under robustd, torchrun and NVRx's ft_launcher, in turn; adds to target/bench/hosting.json.

    scripts/torch.sh --run scripts/bench_launchers.py BINARIES OUT.json [--kills 5] [--runs 3]

Kills: rank 1 of two is killed (SIGKILL) while both train; the time until a step is done again is taken from the program's
own lines, the same for all. It keeps its own checkpoint, so robustd has it at level `none`. Whoever has no step within a
minute has not recovered, and is started anew. Overhead: steps that end with `commit` against steps of the same processes
that do not, two and two, and the processor time of robustd and its shims over that of the ranks. NVRx comes from PyPI into
a folder that goes again; where it cannot be had it is left out, and that is said.
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
NVRX = ROOT / "fixtures/python/requirements-nvrx.txt"
# A step of the kills is to be short, and one of the overhead as long as tokens make it: a rank has some thousand at least.
KILL_ROWS, STEP_ROWS, STEPS = 1024, 8192, 60
PATIENCE_S = 60


def spread(values):
    """Minimum, median and maximum, rounded to a tenth; nothing of nothing."""
    if not values:
        return None
    return {"min": round(min(values), 1), "median": round(statistics.median(values), 1), "max": round(max(values), 1)}


class Robustd:
    name = "robustd"

    def __init__(self, binaries):
        self.binaries = binaries

    def command(self, folder, steps, keeps, rows):
        """The program as a job of its own."""
        level = "state" if keeps == "commit" else "none"
        job = folder / "job.toml"
        argv = json.dumps([os.environ["TORCH_PYTHON"], str(LOOP), str(folder), str(steps), keeps, str(rows)])
        # As many deaths as are asked for are no reason to give up.
        text = f'[trainer.command]\nargv = {argv}\nlevel = "{level}"\nenv = {{ PYTHONPATH = "{ROOT}/python/src" }}\n'
        job.write_text(f"{text}[restart]\nmax = 1000\n[checkpoint]\nevery = 1000\n")
        return [str(self.binaries / "robustd"), "--job", str(job), "--state-dir", str(folder / "state")], {}


class Torchrun:
    name = "torchrun"

    def command(self, folder, steps, keeps, rows):
        launcher = [os.environ["TORCH_PYTHON"], "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        return [*launcher, "--max-restarts", "1000", str(LOOP), str(folder), str(steps), keeps, str(rows)], {}


class Nvrx:
    name = "nvrx"

    def __init__(self, packages):
        self.packages = packages

    def command(self, folder, steps, keeps, rows):
        module = "nvidia_resiliency_ext.fault_tolerance.launcher"
        launcher = [os.environ["TORCH_PYTHON"], "-m", module, "--nproc-per-node", "2", "--rdzv-backend", "c10d"]
        launcher += ["--rdzv-endpoint", "127.0.0.1:0", "--max-restarts", "1000"]
        return [*launcher, str(LOOP), str(folder), str(steps), keeps, str(rows)], {"PYTHONPATH": str(self.packages)}


def nvrx(folder):
    """NVRx as a launcher; none where it cannot be installed."""
    pip = ["python3", "-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes", "--only-binary", ":all:"]
    done = subprocess.run([*pip, "--target", str(folder), "-r", str(NVRX)], capture_output=True, text=True)
    if done.returncode == 0:
        return Nvrx(folder)
    print(f"bench_launchers: NVRx is left out, it cannot be installed: {done.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
    return None


class Run:
    """A launcher with its program, which ends with the block."""

    def __init__(self, launcher, steps, keeps, rows):
        self.launcher = launcher
        self.of = (steps, keeps, rows)

    def __enter__(self):
        self.temporary = tempfile.TemporaryDirectory(prefix="robust-bench.")
        self.folder = Path(self.temporary.name)
        command, more = self.launcher.command(self.folder, *self.of)
        path = os.pathsep.join(filter(None, [f"{ROOT}/python/src", more.get("PYTHONPATH")]))
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path}
        self.log = open(self.folder / "log", "w")
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log, env=environment, start_new_session=True)
        return self

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        # Ranks in sessions of their own are not left behind by a launcher that had to be killed.
        for pid in self.members():
            os.kill(pid, signal.SIGKILL)
        self.log.close()
        self.temporary.cleanup()

    def steps(self):
        """What rank 0 did: step, when it ended, and the ms in which it was given to robustd (0: it was not)."""
        path = self.folder / "steps-0"
        lines = path.read_text().splitlines() if path.exists() else []
        return [(int(step), float(at), float(ms)) for step, at, ms in (line.split() for line in lines)]

    def until(self, what, done, seconds=PATIENCE_S):
        """What `done` finds, or nothing in that time. Raises SystemExit where the launcher ended instead."""
        limit = time.monotonic() + seconds
        while time.monotonic() < limit:
            if found := done():
                return found
            if self.process.poll() is not None:
                tail = (self.folder / "log").read_text()[-2000:]
                sys.exit(f"bench_launchers: error: {self.launcher.name} ended with {self.process.returncode} before {what}:\n{tail}")
            time.sleep(0.02)
        return None

    def members(self, rank=None):
        """Processes of the program, of this rank or of all."""
        found = []
        for entry in Path("/proc").iterdir():
            try:
                line, environment = (entry / "cmdline").read_bytes(), (entry / "environ").read_bytes()
            except OSError:
                continue
            is_of = str(LOOP).encode() in line and str(self.folder).encode() in line
            is_rank = b"\0RANK=" in b"\0" + environment if rank is None else b"\0RANK=%d\0" % rank in b"\0" + environment
            if is_of and is_rank and b"--nproc-per-node" not in line:
                found.append(int(entry.name))
        return found

    def processor_s(self, programs):
        """Seconds of processor time of those programs that know this folder."""
        ticks = 0
        for entry in Path("/proc").iterdir():
            try:
                line, stat = (entry / "cmdline").read_bytes(), (entry / "stat").read_text()
            except OSError:
                continue
            first = Path(os.fsdecode(line.split(b"\0")[0])).name
            if str(self.folder).encode() in line and any(first.startswith(name) for name in programs):
                ticks += sum(map(int, stat.rsplit(") ", 1)[1].split()[11:13]))
        return ticks / os.sysconf("SC_CLK_TCK")


def one_kill(run):
    """Milliseconds from a kill to the next step that is done; none where there was none within a minute."""
    seen = len(run.steps())
    if not run.until("steps", lambda: len(run.steps()) >= seen + 5):
        return None
    victim = run.until("rank 1", lambda: run.members(1))[0]
    begun = time.time()
    os.kill(victim, signal.SIGKILL)
    new = run.until("a step", lambda: [at for _, at, _ in run.steps() if at > begun + 0.5])
    return (new[0] - begun) * 1000 if new else None


def kills(launcher, count):
    """What each kill took; a launcher that does not recover is started anew."""
    took = []
    while len(took) < count:
        with Run(launcher, 1000000, "own", KILL_ROWS) as run:
            while len(took) < count:
                took.append(one_kill(run))
                said = "no step within a minute" if took[-1] is None else f"{took[-1]:.0f} ms"
                print(f"{launcher.name}: kill {len(took)} of {count}: {said}", file=sys.stderr)
                if took[-1] is None:
                    break
    return took


def overhead(launcher):
    """The ms in `commit`, what it adds to a step in percent, the share of robustd and its shims in the processor time, and
    the ms of a step without it."""
    with Run(launcher, STEPS, "commit", STEP_ROWS) as run:
        seen = lambda: len(run.steps()) >= STEPS - 1 and run.steps()  # noqa: E731
        steps = run.until("the last step", seen, 600)
        ours, theirs = run.processor_s(["robust"]), run.processor_s(["python"])
    # The first turn of each kind makes its memory.
    took = [(b[1] - a[1], b[2]) for a, b in zip(steps, steps[1:])][5:]
    given, alone = (statistics.median(ms for ms, given in took if (given > 0) is kind) * 1000 for kind in (True, False))
    commit = statistics.median(given for _, given in took if given > 0)
    return commit, (given / alone - 1) * 100, ours / theirs * 100, alone


def main():
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("binaries", type=Path)
    words.add_argument("out", type=Path)
    words.add_argument("--kills", type=int, default=5)
    words.add_argument("--runs", type=int, default=3)
    args = words.parse_args()
    if "TORCH_PYTHON" not in os.environ:
        sys.exit("bench_launchers: error: TORCH_PYTHON is not set; run it by scripts/torch.sh --run")
    robustd, before = Robustd(args.binaries.resolve()), os.getloadavg()[0]
    figures = {}
    with tempfile.TemporaryDirectory(prefix="robust-nvrx.") as packages:
        for launcher in filter(None, [robustd, Torchrun(), nvrx(Path(packages))]):
            took = kills(launcher, args.kills)
            figures[f"{launcher.name}_kills"] = len(took)
            back = [ms for ms in took if ms is not None]
            figures |= {f"{launcher.name}_recovered": len(back), f"{launcher.name}_total_ms": spread(back)}
    runs = []
    for number in range(args.runs):
        runs.append(overhead(robustd))
        ms, percent, share, alone = runs[-1]
        print(
            f"run {number + 1} of {args.runs}: commit takes {ms:.1f} ms and makes a step of {alone:.0f} ms {percent:.1f} % longer; "
            f"robustd and its shims use {share:.1f} % of the ranks' processor time",
            file=sys.stderr,
        )
    names = ["pytorch_commit_ms", "pytorch_overhead_percent", "robustd_cpu_percent", "pytorch_step_alone_ms"]
    figures |= {name: spread(values) for name, values in zip(names, zip(*runs))}
    figures["launchers_load"] = [round(before, 1), round(os.getloadavg()[0], 1)]
    args.out.parent.mkdir(parents=True, exist_ok=True)
    known = json.loads(args.out.read_text()) if args.out.exists() else {}
    args.out.write_text(json.dumps({**known, "launchers": figures}, indent=1) + "\n")
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
