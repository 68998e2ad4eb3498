"""A rank of two that trains a small network on noise: what bench_launchers.py starts, under robustd and torchrun.

    bench_loop.py FOLDER STEPS [plain|own|commit]

`plain` keeps nothing; `own` saves a checkpoint of its own after each step and begins with it; `commit` gives each step to
robustd. Each step adds a line to FOLDER/steps-RANK: the step, and when it ended (seconds since the epoch).
"""

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

import robustrl

WIDTH, BATCH = 768, 1024


def main():
    folder, steps, keeps = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    torch.set_num_threads(1)
    job = robustrl.attach()
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    model = torch.nn.Sequential(*[torch.nn.Linear(WIDTH, WIDTH) for _ in range(4)])
    optim = torch.optim.AdamW(model.parameters())
    saved, step = folder / "checkpoint.pt", 0
    if keeps == "commit":
        step = job.restore({"model": model, "optim": optim})
    elif keeps == "own" and saved.exists():
        state = torch.load(saved, weights_only=True)
        model.load_state_dict(state["model"])
        optim.load_state_dict(state["optim"])
        step = state["step"]
    while step < steps and not job.over:
        step += 1
        loss = model(torch.randn(BATCH, WIDTH)).square().mean()
        optim.zero_grad()
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optim.step()
        if keeps == "commit":
            job.commit(loss=loss)
        elif keeps == "own" and dist.get_rank() == 0:
            torch.save({"model": model.state_dict(), "optim": optim.state_dict(), "step": step}, saved.with_suffix(".new"))
            os.replace(saved.with_suffix(".new"), saved)
        with open(folder / f"steps-{dist.get_rank()}", "a") as file:
            file.write(f"{step} {time.time()}\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
