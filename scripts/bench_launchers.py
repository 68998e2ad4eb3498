#!/usr/bin/env python3
"""One training loop under robustd, torchrun, NVRx's ft_launcher, Ray Train and torchft, in turn.

    scripts/torch.sh --run scripts/bench_launchers.py BINARIES OUT.json [--kills 25] [--runs 3] [--only NAME,..]

Kills, to peers.json beside OUT.json: rank 1 of two is killed (SIGKILL) while both train; the time until both have done a
step again, and until the first of them has, is taken from the program's own lines, the same for all. It keeps its own
checkpoint, so robustd has it at level `none`, and once more with warm spares; with torchft the replica that lives goes on alone, and the other takes its
state from it. Whoever has no step of both within a minute has not recovered, and is started anew. The launchers take turns,
--round kills each, so that other work on the machine is the same for all.
Overhead, added to OUT.json: steps that end with `commit` against steps of the same processes that do not, two and two, and
the processor time of robustd and its shims over that of the ranks. The peers come from PyPI, pinned, into a folder that goes
again; where they cannot be had they are left out, and that is said.
"""

import argparse
import contextlib
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
PEERS = ROOT / "fixtures/python/requirements-launchers.txt"
# A step of the kills is to be short, and one of the overhead as long as tokens make it: a rank has some thousand at least.
KILL_ROWS, STEP_ROWS, STEPS = 1024, 8192, 60
PATIENCE_S = 60
MARK = "ROBUST_BENCH_FOLDER"


def spread(values):
    """Minimum, median and maximum, rounded to a tenth; nothing of nothing."""
    if not values:
        return None
    return {"min": round(min(values), 1), "median": round(statistics.median(values), 1), "max": round(max(values), 1)}


class Robustd:
    name = "robustd"
    level = "none"
    spares = 0

    def __init__(self, binaries):
        self.binaries = binaries

    def command(self, folder, steps, keeps, rows):
        """The program as a job of its own."""
        level = "state" if keeps == "commit" else self.level
        job = folder / "job.toml"
        argv = json.dumps([os.environ["TORCH_PYTHON"], str(LOOP), str(folder), str(steps), keeps, str(rows)])
        # As many deaths as are asked for are no reason to give up.
        text = f'[trainer.command]\nargv = {argv}\nlevel = "{level}"\nenv = {{ PYTHONPATH = "{ROOT}/python/src" }}\n'
        job.write_text(f"{text}[restart]\nmax = 1000\nspares = {self.spares}\n[checkpoint]\nevery = 1000\n")
        return [str(self.binaries / "robustd"), "--job", str(job), "--state-dir", str(folder / "state")], {}

    def is_prepared(self, folder):
        """Whether a spare of each of the two ranks waits, where there are any."""
        status = [str(self.binaries / "robustctl"), "--state-dir", str(folder / "state"), "status", "--json"]
        told = subprocess.run(status, capture_output=True, text=True) if self.spares else None
        if told is None or told.returncode != 0:
            return told is None
        return sum(of["ready"] for of in json.loads(told.stdout).get("spares", [])) >= 2 * self.spares


class RobustdWithSpares(Robustd):
    """With a warm spare of each rank: it waits in `attach()`, which the level `phases` is the lowest to promise."""

    name = "robustd_spares"
    level = "phases"
    spares = 1


class Launcher:
    """One that keeps nothing ready."""

    def is_prepared(self, folder):
        return True


class Torchrun(Launcher):
    name = "torchrun"

    def command(self, folder, steps, keeps, rows):
        launcher = [os.environ["TORCH_PYTHON"], "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        return [*launcher, "--max-restarts", "1000", str(LOOP), str(folder), str(steps), keeps, str(rows)], {}


class Peer(Launcher):
    """A launcher that was installed into a folder."""

    def __init__(self, packages):
        self.packages = packages

    def command(self, folder, steps, keeps, rows):
        """Its command, and the variables that it needs."""
        return self.launch(folder, steps, keeps, rows), {"PYTHONPATH": str(self.packages)}


class Nvrx(Peer):
    name = "nvrx"

    def launch(self, folder, steps, keeps, rows):
        module = "nvidia_resiliency_ext.fault_tolerance.launcher"
        launcher = [os.environ["TORCH_PYTHON"], "-m", module, "--nproc-per-node", "2", "--rdzv-backend", "c10d"]
        launcher += ["--rdzv-endpoint", "127.0.0.1:0", "--max-restarts", "1000"]
        return [*launcher, str(LOOP), str(folder), str(steps), keeps, str(rows)]


class Ray(Peer):
    name = "ray"

    def launch(self, folder, steps, keeps, rows):
        return [os.environ["TORCH_PYTHON"], str(ROOT / "scripts/bench_ray.py"), str(folder), str(steps), str(rows)]


class Torchft(Peer):
    name = "torchft"

    def launch(self, folder, steps, keeps, rows):
        return [os.environ["TORCH_PYTHON"], str(ROOT / "scripts/bench_torchft.py"), str(folder), str(steps), str(rows)]


def peers(folder):
    """The launchers that have to be installed; none where they cannot be."""
    pip = ["python3", "-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes", "--only-binary", ":all:"]
    done = subprocess.run([*pip, "--target", str(folder), "-r", str(PEERS)], capture_output=True, text=True)
    if done.returncode == 0:
        return [Nvrx(folder), Ray(folder), Torchft(folder)]
    print(f"bench_launchers: NVRx, Ray and torchft are left out, they cannot be installed: {done.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
    return []


def versions():
    """What is measured, of what version."""
    pinned = dict(line.split(" ")[0].split("==") for line in PEERS.read_text().splitlines() if "==" in line)
    torch = subprocess.run([os.environ["TORCH_PYTHON"], "-c", "import torch; print(torch.__version__)"], capture_output=True, text=True)
    return {"torchrun": torch.stdout.strip(), "nvrx": pinned["nvidia-resiliency-ext"], "ray": pinned["ray"], "torchft": pinned["torchft"]}


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
        # A home of its own: Ray leaves a token there. The mark is what all of its processes are known by.
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path, "HOME": str(self.folder), MARK: str(self.folder)}
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
        # What is in sessions of its own is not left behind by a launcher that had to be killed, nor what that starts meanwhile.
        while left := self.members():
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)
        self.log.close()
        self.temporary.cleanup()

    def steps(self, rank=0):
        """What a rank did: step, when it ended, and the ms in which it was given to robustd (0: it was not)."""
        path = self.folder / f"steps-{rank}"
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

    def members(self):
        """All processes that are left of it."""
        found, mark = [], f"{MARK}={self.folder}".encode()
        for entry in Path("/proc").iterdir():
            try:
                environment = (entry / "environ").read_bytes()
            except OSError:
                continue
            if mark in environment.split(b"\0"):
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
    """Milliseconds from a kill to the next step of the first rank that does one, and of both; none where there was none
    within a minute."""
    seen = [len(run.steps(rank)) for rank in (0, 1)]
    if not run.until("steps", lambda: all(len(run.steps(rank)) >= seen[rank] + 5 for rank in (0, 1))):
        return None, None
    if not run.until("its spares wait", lambda: run.launcher.is_prepared(run.folder)):
        return None, None
    victim = int((run.folder / "pid-1").read_text())
    begun = time.time()
    os.kill(victim, signal.SIGKILL)

    def next_of(rank):
        # A line of a step that was done when the signal came is no step after it.
        return [at for _, at, _ in run.steps(rank)[seen[rank] :] if at > begun + 0.2][:1]

    run.until("a step of both", lambda: next_of(0) and next_of(1))
    again = [next_of(rank) for rank in (0, 1)]
    first = min((at[0] for at in again if at), default=None)
    took = lambda at: None if at is None else (at - begun) * 1000  # noqa: E731
    return took(first), took(max(again)[0] if all(again) else None)


def kills(launcher, count):
    """What each kill took, to the first rank's step and to both's; a launcher that does not recover is started anew."""
    took = []
    while len(took) < count:
        with Run(launcher, 1000000, "own", KILL_ROWS) as run:
            while len(took) < count:
                took.append(one_kill(run))
                both = took[-1][1]
                said = "no step of both within a minute" if both is None else f"{both:.0f} ms"
                print(f"{launcher.name}: kill {len(took)} of {count}: {said}", file=sys.stderr)
                if both is None:
                    break
    return took


def killed(launchers, count, at_once):
    """All kills of all launchers, in turns."""
    took = {launcher.name: [] for launcher in launchers}
    while any(len(of) < count for of in took.values()):
        for launcher in launchers:
            of = took[launcher.name]
            of += kills(launcher, min(at_once, count - len(of)))
    return {
        name: {
            "kills": len(of),
            "recovered": sum(both is not None for _, both in of),
            "both_stepping_ms": spread([both for _, both in of if both is not None]),
            "first_stepping_ms": spread([first for first, _ in of if first is not None]),
        }
        for name, of in took.items()
    }


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
    words.add_argument("--kills", type=int, default=25)
    words.add_argument("--round", type=int, default=5)
    words.add_argument("--runs", type=int, default=3)
    words.add_argument("--only", type=lambda text: text.split(","), help="launchers, of robustd, robustd_spares, torchrun, nvrx, ray and torchft")
    args = words.parse_args()
    if "TORCH_PYTHON" not in os.environ:
        sys.exit("bench_launchers: error: TORCH_PYTHON is not set; run it by scripts/torch.sh --run")
    robustd, before = Robustd(args.binaries.resolve()), os.getloadavg()[0]
    args.out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="robust-peers.") as packages:
        launchers = [robustd, RobustdWithSpares(robustd.binaries), Torchrun(), *peers(Path(packages))]
        launchers = [launcher for launcher in launchers if not args.only or launcher.name in args.only]
        found = {"launchers": killed(launchers, args.kills, args.round), "versions": versions()}
    found["load"] = [round(before, 1), round(os.getloadavg()[0], 1)]
    (args.out.parent / "peers.json").write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=2))
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
    figures = {name: spread(values) for name, values in zip(names, zip(*runs))}
    figures["launchers_load"] = [round(before, 1), round(os.getloadavg()[0], 1)]
    known = json.loads(args.out.read_text()) if args.out.exists() else {}
    args.out.write_text(json.dumps({**known, "launchers": figures}, indent=1) + "\n")
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
