#!/usr/bin/env python3
"""Jobs whose trainer computes on an NVIDIA device, with real faults: `make test-device` runs it where there is one.

    TORCH_PYTHON=python scripts/test_device.py BINARIES [OUT.json]

TORCH_PYTHON is a python with torch for CUDA and transformers. The trainer is examples/grpo_torch (one rank with NCCL,
unless said otherwise) with built-in rollouts. Each check is a job of its own, most of them side by side; what one found
goes to OUT.json and to the terminal. WORD: only the checks that have it in their name. Ends with 1 when a check failed.
Takes some four minutes.
"""

import concurrent.futures
import hashlib
import json
import os
import pwd
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TRAINER = (ROOT / "examples/grpo_torch/train.py").read_text()
STEP_DONE = "            optim.step()\n"
WITHIN = 120

# Once, in the first life of the program: what is wrong happens after the fourth step's update.
ONCE = """            if batch.step == 4 and not os.path.exists("done"):
                open("done", "w").close()
                {wrong}
"""
MATMULS = """            import time
            big, end = torch.randn(8192, 8192, device=device, dtype=torch.{dtype}), time.monotonic() + {seconds}
            while time.monotonic() < end:
                for _ in range(4):
                    big @ big
                torch.cuda.synchronize()
"""


def after_update(text):
    assert STEP_DONE in TRAINER
    return TRAINER.replace(STEP_DONE, STEP_DONE + text)


class Job:
    """A daemon with a job, and robustctl for it. Everything of it lies in a folder of its own."""

    def __init__(self, name, script=TRAINER, replace=(), arguments=(), cache=None):
        self.folder = Path(tempfile.mkdtemp(prefix=f"robust-{name}."))
        self.folder.chmod(0o755)
        env = {**os.environ, **({"ROBUST_CACHE": cache} if cache else {})}
        text = (ROOT / "fixtures/jobs/test-torch.toml").read_text()
        for before, after in [
            ("../datasets", f"{ROOT}/fixtures/datasets"),
            ("../tokenizers", f"{ROOT}/fixtures/tokenizers"),
            ("../../examples/grpo_torch", str(self.folder)),
            ("../../python/src", f"{ROOT}/python/src"),
            ("ranks = 2", "ranks = 1"),
            ("pools = { train = 2,", "devices = { train = [0] }\npools = { train = 1,"),
            ("steps = 6\n", "steps = 100000\n"),
            *replace,
        ]:
            assert before in text, f"the fixture has no {before!r}"
            text = text.replace(before, after)
        (self.folder / "job.toml").write_text(text)
        (self.folder / "train.py").write_text(script)
        self.state = self.folder / "state"
        self.log = self.folder / "robustd.log"
        command = [BINARIES / "robustd", "--job", self.folder / "job.toml", "--state-dir", self.state, *arguments]
        with open(self.log, "w") as log:
            self.daemon = subprocess.Popen(command, stdout=log, stderr=log, env=env)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.daemon.terminate()
        try:
            self.daemon.wait(30)
        except subprocess.TimeoutExpired:
            self.daemon.kill()

    def ask(self, *words):
        done = subprocess.run([BINARIES / "robustctl", "--state-dir", self.state, *words, "--json"], capture_output=True, text=True)
        return json.loads(done.stdout) if done.stdout.strip() else {"error": done.stderr}

    def events(self):
        done = subprocess.run([BINARIES / "robustctl", "--state-dir", self.state, "events", "--json"], capture_output=True, text=True)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def until(self, what, holds):
        end = time.monotonic() + WITHIN
        while time.monotonic() < end:
            status = self.ask("status")
            if "step" in status and holds(status):
                return status
            if self.daemon.poll() is not None:
                break
            time.sleep(0.1)
        raise AssertionError(f"{what}: not within {WITHIN} s; the log ends: {self.log.read_text()[-1500:]}")

    def until_step(self, step):
        return self.until(f"step {step}", lambda status: status["step"] >= step)

    def struck(self, *fault):
        """The incident of a fault, over which the gang alone was restarted."""
        incident = self.ask("inject", *fault, "--wait").get("incident", {})
        assert incident.get("outcome") == "recovered", f"{fault}: {incident}"
        assert incident["plan"].startswith("restart the trainer gang"), f"{fault}: {incident['plan']}"
        # A fault before the restarted gang's first step would rightly restart the task.
        self.until_step(incident["step"] + 2)
        return incident

    def found(self):
        """The first incident that the job has by itself, once it is over."""
        over = lambda status: status["incidents"] and status["incidents"][0]["outcome"] in ("recovered", "failed")
        incident = self.until("an incident", over)["incidents"][0]
        assert incident["outcome"] == "recovered", incident
        return incident

    def finished(self):
        assert self.daemon.wait(WITHIN) == 0, self.log.read_text()[-1500:]


def told(incident):
    return {key: incident[key] for key in ("rule", "reason", "detect_ms", "total_ms")}


def below(pid):
    """The processes that one started, and those that they did."""
    found = [int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()]
    return found + [other for child in found for other in below(child)]


def device_memory_mib():
    asked = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "--id=0"]
    return int(subprocess.run(asked, capture_output=True, text=True, check=True).stdout)


def each_fault_restarts_the_gang_alone_and_gives_the_devices_memory_back():
    faults = [("--kill",), ("--exception", "--at=update"), ("--nan",), ("--exit", "--at=snapshot"), ("--exit", "--at=publish"), ("--kill",)]
    with Job("faults") as job:
        job.until_step(2)
        before, found = device_memory_mib(), []
        for kind, *more in faults:
            found.append({"fault": " ".join([kind, *more]), **told(job.struck(kind, "trainer", *more))})
        after, status = device_memory_mib(), job.ask("status")
        problems = job.ask("store", "check")["problems"]
    assert problems == [], problems
    assert {role["restarts"] for role in status["roles"] if role["role"] == "rollout"} == {0}
    assert after <= before + 64, f"{before} MiB of the device were in use, and {after} MiB are after {len(faults)} lives"
    return {"incidents": found, "device_memory_mib": [before, after]}


def what_nvml_tells_is_shown_of_the_role_whose_program_computes():
    with Job("shown", after_update(MATMULS.format(dtype="bfloat16", seconds=5)), arguments=["--metrics", "127.0.0.1:9473"]) as job:
        job.until_step(1)
        time.sleep(3)
        metrics = urllib.request.urlopen("http://127.0.0.1:9473/metrics").read().decode()
        (trainer,) = [role for role in job.ask("status")["roles"] if role["role"] == "trainer"]
    rows = dict(re.findall(r"^(robust_device_\S+) (\S+)$", metrics, re.M))
    shown = {key: value for key, value in trainer.items() if key.startswith("gpu_")}
    busy = {unit: float(value) for unit, value in re.findall(r'robust_device_busy_ratio\S*unit="(\w+)"} (\S+)', metrics)}
    assert busy.get("tensor", 0) > 0.3, f"tensor cores, by GPM: {busy}"
    assert (trainer["gpu_memory_bytes"] or 0) > 100 << 20, f"the trainer's device: {shown}"
    return {"busy": busy, "trainer": shown, "metrics": rows}


def a_kernel_that_never_ends_is_a_hang_though_its_rank_spins():
    text = MATMULS.format(dtype="bfloat16", seconds=1) + ONCE.format(wrong="torch.cuda._sleep(1 << 62)")
    with Job("stuck", after_update(text), [("trainer_idle = { window_s = 10 }", "trainer_idle = { window_s = 4 }")]) as job:
        incident = job.found()
    assert incident["rule"] == "trainer idle", incident
    return told(incident)


def computing_in_float32_for_longer_than_the_window_is_no_hang():
    text = after_update(MATMULS.format(dtype="float32", seconds=12))
    with Job("float32", text, [("trainer_idle = { window_s = 10 }", "trainer_idle = { window_s = 4 }")], ["--metrics", "127.0.0.1:9474"]) as job:
        job.until("an update", lambda status: any(role["phase"] == "update" for role in status["roles"]))
        time.sleep(6)
        metrics = urllib.request.urlopen("http://127.0.0.1:9474/metrics").read().decode()
        incidents = job.until_step(2)["incidents"]
    assert incidents == [], incidents
    return re.findall(r'robust_device_busy_ratio\S*unit="(\w+)"} (\S+)', metrics)


def a_device_without_memory_left_is_told_in_the_programs_words():
    wrong = "torch.empty(1 << 45, device=device)"
    with Job("memory", after_update(ONCE.format(wrong=wrong))) as job:
        incident = job.found()
    assert "OutOfMemoryError" in incident["reason"], incident
    return told(incident)


def an_error_of_a_kernel_ends_the_program_and_not_the_device():
    wrong = "torch.ones(3, device=device)[torch.tensor([7], device=device)].sum().item()"
    with Job("assert", after_update(ONCE.format(wrong=wrong))) as job:
        incident = job.found()
        job.until_step(6)
        hardware = [event["text"] for event in job.events() if "Xid" in event["text"]]
    assert "CUDA error" in incident["reason"], incident
    return {**told(incident), "hardware": hardware}


def ranks_that_share_the_device_by_gloo_go_on_after_a_kill():
    script = TRAINER.replace('"cpu:gloo,cuda:nccl" if on_cuda else "gloo"', '"gloo"').replace("job.local_rank)", "0)")
    two = [("ranks = 1", "ranks = 2"), ("devices = { train = [0] }\npools = { train = 1,", "pools = { train = 2,")]
    with Job("gloo", script, two) as job:
        job.until_step(2)
        return [told(job.struck("--kill", "trainer", "--index", index)) for index in ("1", "0")]


def shards_of_fsdp_go_on_after_a_kill():
    script = (ROOT / "examples/grpo_fsdp/train.py").read_text()
    with Job("fsdp", script, [("max_new_tokens = 24", 'max_new_tokens = 24\ndtype = "bfloat16"')]) as job:
        job.until_step(2)
        return told(job.struck("--kill", "trainer"))


def ranks_of_another_user_compute_on_the_device_and_are_back_after_a_kill():
    found, cache = {}, tempfile.mkdtemp(prefix="robust-cache.")
    with Job("model", cache=cache) as job:
        job.until_step(1)
    subprocess.run(["chmod", "-R", "a+rX", cache], check=True)
    for kept in ["slot", "dcp"]:
        command = 'argv = ["{env:TORCH_PYTHON}", "train.py"]'
        given = f'{command}\nuser = "nobody"\nsnapshot = "{kept}"'
        with Job("user", replace=[(command, given)], cache=cache) as job:
            job.until_step(2)
            (trainer,) = [role for role in job.ask("status")["roles"] if role["role"] == "trainer"]
            users = {Path(f"/proc/{pid}").stat().st_uid for pid in [trainer["pid"], *below(trainer["pid"])]}
            incident = job.struck("--kill", "trainer")
        assert pwd.getpwnam("nobody").pw_uid in users, f"the trainer's processes are of {users}"
        found[kept] = told(incident)
    return found


def in_mode_sync_weights_and_optimiser_after_a_kill_are_those_without_one():
    def run(name, strike):
        with Job(name, replace=[("steps = 100000\n", "steps = 6\n"), ('mode = "async"', 'mode = "sync"')]) as job:
            if strike:
                job.until_step(2)
                job.struck("--kill", "trainer")
            job.finished()
            shards = sorted((job.state / "ckpt/step-6").glob("*.safetensors"))
            return [hashlib.sha256(shard.read_bytes()).hexdigest() for shard in shards]

    with concurrent.futures.ThreadPoolExecutor() as pool:
        quiet, struck = pool.map(run, ["quiet", "struck"], [False, True])
    assert quiet and quiet == struck, f"{quiet} and {struck}"
    return {"sha256": quiet}


COPIES = """
import json, os, sys, time, torch
sys.path.insert(0, sys.argv[1])
from robustrl._files import Mapped
size, part = 4 << 30, 256 << 20
tensors = [torch.randn(part // 4, device="cuda") for _ in range(size // part)]
placed = [{"dtype": "F32", "shape": [part // 4], "start": at, "end": at + part} for at in range(0, size, part)]
def gb_s(file, non_blocking):
    torch.cuda.synchronize()
    start = time.perf_counter()
    for where, tensor in zip(placed, tensors):
        file.tensor(0, where).copy_(tensor, non_blocking=non_blocking)
    torch.cuda.synchronize()
    return round(size / 1e9 / (time.perf_counter() - start), 1)
for folder in sys.argv[2:]:
    path = os.path.join(folder, f"robust-copies.{os.getpid()}")
    with open(path, "wb") as file:
        file.truncate(size)
    try:
        file = Mapped(path, writable=True)
        paged = [gb_s(file, False) for _ in range(3)]
        start = time.perf_counter()
        pinned = file.pin()
        took = round(time.perf_counter() - start, 2)
        after = [gb_s(file, pinned) for _ in range(3)]
        same = all(torch.equal(file.tensor(0, where).cuda(), tensor) for where, tensor in zip(placed, tensors))
        file.unpin()
        print(json.dumps({"folder": folder, "paged_gb_s": paged, "pinned": pinned, "pinning_s": took, "after_gb_s": after, "same": same}), flush=True)
    finally:
        os.unlink(path)
"""


def snapshots_are_the_devices_bytes_whether_their_memory_can_be_pinned_or_not():
    command = [os.environ["TORCH_PYTHON"], "-c", COPIES, f"{ROOT}/python/src", "/dev/shm", tempfile.gettempdir()]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-1500:]
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [of["same"] for of in found] == [True, True], found
    assert found[0]["pinned"], found
    return found


ALONE = [
    snapshots_are_the_devices_bytes_whether_their_memory_can_be_pinned_or_not,
    what_nvml_tells_is_shown_of_the_role_whose_program_computes,
    computing_in_float32_for_longer_than_the_window_is_no_hang,
    each_fault_restarts_the_gang_alone_and_gives_the_devices_memory_back,
]
TOGETHER = [
    a_kernel_that_never_ends_is_a_hang_though_its_rank_spins,
    a_device_without_memory_left_is_told_in_the_programs_words,
    an_error_of_a_kernel_ends_the_program_and_not_the_device,
    ranks_that_share_the_device_by_gloo_go_on_after_a_kill,
    shards_of_fsdp_go_on_after_a_kill,
    ranks_of_another_user_compute_on_the_device_and_are_back_after_a_kill,
    in_mode_sync_weights_and_optimiser_after_a_kill_are_those_without_one,
]


def run(check):
    start, name = time.monotonic(), check.__name__.replace("_", " ")
    try:
        found, failed = check(), None
    except Exception as error:  # a check that breaks has failed as well
        found, failed = None, f"{type(error).__name__}: {error}"
    print(f"{'FAILED' if failed else 'ok':6}  {time.monotonic() - start:5.1f} s  {name}\n        {failed or json.dumps(found)}", flush=True)
    return {"check": name, "failed": failed, "found": found}


def main():
    global BINARIES
    if len(sys.argv) not in (2, 3, 4):
        sys.exit("test_device: error: it is: scripts/test_device.py BINARIES [OUT.json [WORD]]")
    if "TORCH_PYTHON" not in os.environ:
        sys.exit("test_device: error: TORCH_PYTHON is not set; it names a python with torch for CUDA and transformers")
    BINARIES = Path(sys.argv[1]).resolve()
    asked = [os.environ["TORCH_PYTHON"], "-c", "import torch; print(torch.cuda.get_device_name(0))"]
    device = subprocess.run(asked, capture_output=True, text=True)
    if device.returncode != 0:
        sys.exit(f"test_device: error: torch finds no device: {device.stderr.strip().splitlines()[-1]}")
    word = sys.argv[3] if len(sys.argv) == 4 else ""
    results = [run(check) for check in ALONE if word in check.__name__]
    with concurrent.futures.ThreadPoolExecutor(len(TOGETHER)) as pool:
        results += pool.map(run, [check for check in TOGETHER if word in check.__name__])
    if not results:
        sys.exit(f"test_device: error: no check has {word!r} in its name")
    if len(sys.argv) > 2:
        Path(sys.argv[2]).parent.mkdir(parents=True, exist_ok=True)
        Path(sys.argv[2]).write_text(json.dumps({"device": device.stdout.strip(), "checks": results}, indent=1) + "\n")
    failed = [result["check"] for result in results if result["failed"]]
    print(f"{device.stdout.strip()}: {len(results) - len(failed)} of {len(results)} passed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
