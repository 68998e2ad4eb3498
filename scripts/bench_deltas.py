#!/usr/bin/env python3
"""Measures how much of a version an RL step changes, and what is sent for it; adds it to target/bench/weights.json.

    scripts/torch.sh --run scripts/bench_deltas.py BINARIES OUT.json [--steps 30]

The demo job (fixtures/jobs/demo.toml) trains with versions of bfloat16 that go by TLS, at two learning rates; of every
pull of what changed the bytes that came and the share that changed are read from the status. Then a model of
Qwen3-0.6B's shape and random weights takes steps of Adam (lr 1e-6; policy gradients of made-up advantages, in float32)
on a processor, and each version is held against the one before by `robust-weights compare`. That takes 12 GiB, and is
left out, with a line that says so, where there are less or there is no TORCH_PYTHON.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RATES = {"3e5": "3e-5", "1e6": "1e-6"}
NEEDED_GIB = 12
ADAM = r"""
import sys
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

out, steps = sys.argv[1], int(sys.argv[2])
torch.manual_seed(1)
model = Qwen3ForCausalLM(Qwen3Config(
    hidden_size=1024, num_hidden_layers=28, num_attention_heads=16, num_key_value_heads=8, head_dim=128,
    intermediate_size=3072, vocab_size=151936, tie_word_embeddings=True)).float()
adam = torch.optim.AdamW(model.parameters(), lr=1e-6, weight_decay=0.0)

def keep(step):
    with open(f"{out}/{step}", "wb") as file:
        for parameter in model.parameters():
            file.write(parameter.detach().to(torch.bfloat16).view(torch.uint8).numpy().tobytes())
    print(step, flush=True)
    sys.stdin.readline()

keep(0)
for step in range(1, steps + 1):
    ids = torch.randint(0, 151936, (2, 48))
    advantages = torch.tensor([1.0, -1.0]).unsqueeze(1)
    told = model(ids).logits[:, :-1].log_softmax(-1).gather(2, ids[:, 1:, None]).squeeze(2)
    adam.zero_grad()
    (-(advantages * told)).mean().backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    adam.step()
    keep(step)
"""


def figure(values):
    """As `robust-bench weights` writes one."""
    load = os.getloadavg()[0]
    return {"median": statistics.median(values), "min": min(values), "max": max(values), "all": values, "load": load}


def demo(binaries, rate, steps, folder):
    """Of every pull of what changed: bytes that came over those of the version, and the share that changed."""
    text = (ROOT / "fixtures/jobs/demo.toml").read_text().replace('"../', f'"{ROOT}/fixtures/')
    text = text.replace("lr = 3e-5", f"lr = {rate}").replace("[rollout]\n", '[rollout]\ndtype = "bfloat16"\n')
    text = text.replace("[weights]\n", '[weights]\ntransport = "tls"\n')
    (folder / "job.toml").write_text(text)
    state = folder / "state"
    with open(folder / "log", "w") as log:
        command = [binaries / "robustd", "--job", folder / "job.toml", "--steps", str(steps), "--state-dir", state]
        daemon = subprocess.Popen(command, stdout=log, stderr=log)
        seen = {}
        while daemon.poll() is None:
            done = subprocess.run(
                [binaries / "robustctl", "--state-dir", state, "status", "--json"], capture_output=True, text=True
            )
            for role in json.loads(done.stdout)["roles"] if done.returncode == 0 else []:
                if role["pull_patched"] and role["pull_bytes"] == role["pull_total"]:
                    came = role["pull_fetched"] / role["pull_total"]
                    seen[role["index"], role["pull_version"]] = came, role["pull_changed_words"] * 2 / role["pull_total"]
            time.sleep(0.1)
    if daemon.returncode != 0 or not seen:
        sys.exit(f"bench_deltas: error: the demo ended with {daemon.returncode} and {len(seen)} pulls; "
                 f"its log ends: {(folder / 'log').read_text()[-500:]}")
    return zip(*seen.values())


def adam(binaries, folder, steps):
    """The same of each step of Adam, and how fast patches are made, in GB of the version a second."""
    trains = subprocess.Popen(
        [os.environ["TORCH_PYTHON"], "-c", ADAM, folder, str(steps)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    for at in range(steps + 1):
        if not trains.stdout.readline():
            sys.exit("bench_deltas: error: the model could not be trained (the reason is above)")
        if at > 0:
            done = subprocess.run(
                [binaries / "robust-weights", "compare", folder / str(at - 1), folder / str(at)],
                check=True, capture_output=True, text=True,
            )
            told = json.loads(done.stdout)
            yield (
                told["patches_bytes"] / told["bytes"],
                told["changed_bytes"] / told["bytes"],
                told["bytes"] / 1e9 / told["seconds"],
            )
            (folder / str(at - 1)).unlink()
        trains.stdin.write("\n")
        trains.stdin.flush()
    trains.wait()


def has_memory():
    with open("/proc/meminfo") as lines:
        kib = next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    return kib >= NEEDED_GIB << 20


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binaries", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", type=int, default=30)
    args = parser.parse_args()
    binaries, figures = args.binaries.resolve(), {}
    for name, rate in RATES.items():
        with tempfile.TemporaryDirectory(prefix="robust-bench.") as folder:
            came, changed = demo(binaries, rate, args.steps, Path(folder))
            figures[f"delta_bytes_share_demo_{name}"] = figure(list(came))
            figures[f"delta_changed_share_demo_{name}"] = figure(list(changed))
    if has_memory() and "TORCH_PYTHON" in os.environ:
        with tempfile.TemporaryDirectory(prefix="robust-bench.") as folder:
            came, changed, rate = zip(*adam(binaries, Path(folder), 6))
            figures["delta_bytes_share_qwen3_06b_1e6"] = figure(list(came))
            figures["delta_changed_share_qwen3_06b_1e6"] = figure(list(changed))
            figures["delta_build_qwen3_06b_gb_s"] = figure(list(rate))
    else:
        print(f"bench_deltas: steps of Qwen3-0.6B's shape were skipped: they take {NEEDED_GIB} GiB and TORCH_PYTHON", file=sys.stderr)
    known = json.loads(args.out.read_text()) if args.out.exists() else {}
    args.out.write_text(json.dumps({**known, **figures}, indent=1) + "\n")
    for name, of in figures.items():
        print(f"{name:36} {of['median']:9.4f} {of['min']:9.4f} {of['max']:9.4f} {of['load']:6.1f}")


if __name__ == "__main__":
    main()
