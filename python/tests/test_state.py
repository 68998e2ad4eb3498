"""What of a program's objects is kept, and that it comes back as it was."""

import unittest

import torch

from robustrl._state import PLAIN, flatten, gathered, pairs, restore


class Counter:
    """An object of the user's."""

    def __init__(self):
        self.seen = {"words": ["a", None, 2.5], "at": 3}

    def state_dict(self):
        return self.seen

    def load_state_dict(self, state):
        self.seen = state


def trained(steps):
    torch.manual_seed(3)
    model = torch.nn.Linear(3, 2)
    optim = torch.optim.AdamW(model.parameters(), lr=0.1)
    for _ in range(steps):
        optim.zero_grad()
        model(torch.ones(3)).sum().backward()
        optim.step()
    return model, optim


class State(unittest.TestCase):
    def test_model_and_optimiser_go_on_as_if_nothing_had_happened(self):
        model, optim = trained(3)
        kept = {name: tensor.clone() for name, tensor in flatten({"model": model, "optim": optim}).items()}
        other, fresh = trained(0)
        restore({"model": other, "optim": fresh}, kept)
        for one, opt in ((model, optim), (other, fresh)):
            opt.zero_grad()
            one(torch.ones(3)).sum().backward()
            opt.step()
        for name, tensor in model.state_dict().items():
            self.assertTrue(torch.equal(tensor, other.state_dict()[name]), name)

    def test_plain_things_of_an_object_come_back_with_their_types(self):
        counter = Counter()
        kept = flatten({"counter": counter})
        self.assertEqual(list(kept), [PLAIN])
        counter.seen = {}
        restore({"counter": counter}, kept)
        self.assertEqual(counter.seen, {"words": ["a", None, 2.5], "at": 3})

    def test_what_an_iterator_yields_is_copied_before_the_next_lies_there(self):
        room = torch.zeros(2)
        one_by_one = ((name, room.fill_(value)) for name, value in (("a", 1.0), ("b", 2.0)))
        self.assertEqual({name: t.tolist() for name, t in gathered(one_by_one)}, {"a": [1.0, 1.0], "b": [2.0, 2.0]})

    def test_what_cannot_be_kept_is_refused_by_its_path(self):
        counter = Counter()
        counter.seen = {"of": [object()]}
        with self.assertRaisesRegex(TypeError, "`counter/of/0` is a object"):
            flatten({"counter": counter})
        with self.assertRaisesRegex(TypeError, "must have state_dict"):
            flatten({"number": 3})

    def test_a_state_of_other_objects_is_refused(self):
        kept = flatten({"counter": Counter()})
        with self.assertRaisesRegex(KeyError, "give it the same names"):
            restore({"other": Counter()}, kept)

    def test_tied_weights_are_published_once(self):
        model = torch.nn.Sequential(torch.nn.Embedding(4, 2), torch.nn.Linear(2, 4, bias=False))
        model[1].weight = model[0].weight
        self.assertEqual([name for name, _ in pairs(model)], ["0.weight"])


if __name__ == "__main__":
    unittest.main()
