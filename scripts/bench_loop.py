"""A rank of two that trains a small network on noise: what bench_launchers.py starts, under robustd and its peers.

    bench_loop.py FOLDER STEPS own|commit ROWS

`own` saves a checkpoint of its own after each step and begins with it; `commit` gives two steps to robustd, keeps nothing
of the next two, and so on. Each step takes ROWS rows a rank and adds a line to FOLDER/steps-RANK: the step, when it ended
(seconds since the epoch), and the milliseconds in which it was given to robustd (0: it was not). FOLDER/pid-RANK has the
process that is that rank.
"""

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

WIDTH, TURN = 768, 2


def network():
    """The network that all of them train, of the same first weights, and its optimiser."""
    torch.set_num_threads(1)
    torch.manual_seed(1)
    model = torch.nn.Sequential(*[torch.nn.Linear(WIDTH, WIDTH) for _ in range(4)])
    return model, torch.optim.AdamW(model.parameters())


def backward(model, rows):
    """Gradients of one step, of this rank's rows alone."""
    loss = model(torch.randn(rows, WIDTH)).square().mean()
    loss.backward()
    return loss


class Diary:
    """What a rank says of itself in its folder."""

    def __init__(self, folder, rank):
        self.steps = folder / f"steps-{rank}"
        new = folder / f"pid-{rank}.new"
        new.write_text(str(os.getpid()))
        os.replace(new, folder / f"pid-{rank}")

    def step(self, step, given_ms=0.0):
        """A step is done."""
        with open(self.steps, "a") as file:
            file.write(f"{step} {time.time()} {given_ms}\n")


def train(folder, steps, keeps, rows, job=None):
    """Trains in the process group that there is."""
    model, optim = network()
    saved, step = folder / "checkpoint.pt", 0
    if keeps == "commit":
        job.restore({"model": model, "optim": optim})
    elif saved.exists():
        state = torch.load(saved, weights_only=True)
        model.load_state_dict(state["model"])
        optim.load_state_dict(state["optim"])
        step = state["step"]
    diary = Diary(folder, dist.get_rank())
    while step < steps and not (job and job.over):
        step += 1
        optim.zero_grad()
        loss = backward(model, rows)
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optim.step()
        took, begun = 0.0, time.perf_counter()
        if keeps == "commit" and (step - 1) // TURN % 2 == 0:
            job.commit(loss=loss)
            took = (time.perf_counter() - begun) * 1000
        elif keeps == "own" and dist.get_rank() == 0:
            torch.save({"model": model.state_dict(), "optim": optim.state_dict(), "step": step}, saved.with_suffix(".new"))
            os.replace(saved.with_suffix(".new"), saved)
        diary.step(step, took)


def main():
    import robustrl

    folder, steps, keeps, rows = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    job = robustrl.attach()
    dist.init_process_group("gloo")
    train(folder, steps, keeps, rows, job)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
