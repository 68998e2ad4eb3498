"""What weights answer to a fixed prompt."""

import math
import unittest
from types import SimpleNamespace

import torch

from robustrl._canary import answer


class Successor(torch.nn.Module):
    """The token after n is n + 1, three times as likely as n + 2, modulo 8; it must be asked outside of training."""

    def __init__(self):
        super().__init__()
        self.unused = torch.nn.Parameter(torch.zeros(1))

    def forward(self, ids):
        assert not self.training
        logits = torch.full((*ids.shape, 8), -1e9)
        logits.scatter_(-1, ((ids + 1) % 8)[..., None], math.log(3.0))
        logits.scatter_(-1, ((ids + 2) % 8)[..., None], 0.0)
        return SimpleNamespace(logits=logits)


class Canary(unittest.TestCase):
    def test_it_is_the_greedy_continuation_with_its_logprobs_and_margins(self):
        model = Successor().train()
        told = answer(model, {"prompt_ids": [1, 5], "tokens": 3})
        self.assertEqual(told["ids"], [6, 7, 0])
        for logprob, margin in zip(told["logprobs"], told["margins"]):
            self.assertAlmostEqual(logprob, math.log(0.75), places=5)
            self.assertAlmostEqual(margin, math.log(3.0), places=5)
        self.assertTrue(model.training, "it is left as it was")


if __name__ == "__main__":
    unittest.main()
