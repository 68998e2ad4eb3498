"""That a state of ``snapshot = "dcp"`` is taken up by any number of ranks, sharded or not."""

import os
import tempfile
import unittest

import torch
import torch.distributed as dist
import torch.multiprocessing as processes
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from robustrl import _dcp


class Counter:
    """An object of the user's."""

    def __init__(self):
        self.seen = 0

    def state_dict(self):
        return {"seen": self.seen, "of": torch.arange(3)}

    def load_state_dict(self, state):
        self.seen = state["seen"]


def objects(sharded):
    torch.manual_seed(3)
    # Five rows do not divide by two or three.
    model = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Linear(5, 3))
    if sharded:
        fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    optim = torch.optim.AdamW(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.StepLR(optim, 2)
    return {"model": model, "optim": optim, "schedule": schedule, "counter": Counter()}


def train(of, steps):
    for _ in range(steps):
        of["optim"].zero_grad()
        of["model"](torch.ones(2, 4)).square().sum().backward()
        of["optim"].step()
        of["schedule"].step()
        of["counter"].seen += 1
    whole = lambda t: t.full_tensor() if hasattr(t, "full_tensor") else t  # noqa: E731
    return [whole(p.detach()).clone() for p in of["model"].parameters()], of["counter"].seen


def as_rank(rank, world, folder, keeps, sharded):
    meeting = f"file://{folder}/meeting-{keeps}"
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=world)
    of = objects(sharded)
    if keeps:
        train(of, 3)
        kept = {name: tensor.clone() for name, tensor in _dcp.parts(of).items()}
        torch.save(kept, f"{folder}/kept-{rank}")
    else:
        tensors = {}
        for name in os.listdir(folder):
            if name.startswith("kept-"):
                tensors |= torch.load(f"{folder}/{name}", weights_only=True)
        _dcp.take_up(of, tensors)
    torch.save(train(of, 2), f"{folder}/{'before' if keeps else 'after'}-{rank}")
    dist.destroy_process_group()
    # On a busy machine threads of torch 2.11 that are still there abort the interpreter's own end now and then.
    os._exit(0)


class Dcp(unittest.TestCase):
    def gangs(self, before, after):
        """What the last gang trains after taking up what the first one kept, against what that one trained on."""
        with tempfile.TemporaryDirectory() as folder:
            for (world, sharded), keeps in ((before, True), (after, False)):
                processes.spawn(as_rank, (world, folder, keeps, sharded), nprocs=world)
            (one, seen), (other, again) = (torch.load(f"{folder}/{of}-0", weights_only=True) for of in ("before", "after"))
        self.assertEqual((seen, again), (5, 5))
        for a, b in zip(one, other):
            torch.testing.assert_close(a, b)

    def test_a_sharded_state_of_two_ranks_is_that_of_one_and_of_three(self):
        self.gangs((2, True), (1, True))
        self.gangs((2, True), (3, True))

    def test_what_every_rank_has_is_kept_once(self):
        self.gangs((2, False), (1, False))

    def test_without_a_group_it_is_the_state_of_one_rank(self):
        of = objects(False)
        train(of, 3)
        kept = {name: tensor.clone() for name, tensor in _dcp.parts(of).items()}
        other = objects(False)
        _dcp.take_up(other, kept)
        for a, b in zip(train(of, 2)[0], train(other, 2)[0]):
            self.assertTrue(torch.equal(a, b))

    def test_an_optimiser_of_other_parameters_and_another_kind_of_state_are_refused(self):
        of = objects(False)
        del of["model"]
        with self.assertRaisesRegex(ValueError, "has the parameters of the optimiser `optim`"):
            _dcp.parts(of)
        with self.assertRaisesRegex(KeyError, 'none of `snapshot = "dcp"`'):
            _dcp.take_up(objects(False), {"model/0.weight": torch.ones(1)})


if __name__ == "__main__":
    unittest.main()
