"""Weights that one process writes in shared memory and others read, without verl."""

import asyncio
import os
import subprocess
import sys
import tempfile
import unittest

import torch

from robustrl._staged import Stage, read

ALL = {
    "bf16": torch.tensor([[1.5, -2.0], [3.25, 0.0]], dtype=torch.bfloat16),
    "f32": torch.arange(5, dtype=torch.float32),
    "scalar": torch.tensor(7, dtype=torch.int64),
    "empty": torch.empty(0, 3),
    "flags": torch.tensor([True, False, True]),
    "turned": torch.arange(6.0).view(2, 3).t(),
}


async def taken(stage, number, step=None, timeout=0.2, local=True):
    return {name: tensor.clone() async for name, tensor in read(stage.folder, number, step, timeout, local)}


def write(stage, number, tensors, step=None):
    stage.begin()
    for name, tensor in tensors.items():
        stage.add(name, tensor)
    return stage.announce(number, step)


class Staged(unittest.TestCase):
    def setUp(self):
        self.parent = tempfile.TemporaryDirectory()
        self.addCleanup(self.parent.cleanup)

    def stage(self, **options):
        stage = Stage(self.parent.name, **options)
        self.addCleanup(stage.close)
        return stage

    def same(self, one, other):
        self.assertEqual(list(one), list(other))
        for name, tensor in one.items():
            self.assertEqual((tensor.dtype, tensor.shape), (other[name].dtype, other[name].shape), name)
            self.assertTrue(torch.equal(tensor, other[name]), name)

    def test_tensors_of_each_kind_come_as_they_were_written_and_versions_replace_each_other(self):
        stage = self.stage(verify=True)
        write(stage, 1, ALL)
        self.same(ALL, asyncio.run(taken(stage, 1)))
        self.same(ALL, stage.views())
        smaller = {"f32": torch.tensor([9.0]), "new": torch.ones(2, 2)}
        write(stage, 2, smaller)
        self.same(smaller, asyncio.run(taken(stage, 2)))

    def test_a_reader_waits_for_its_version_and_not_for_ever(self):
        stage = self.stage()
        write(stage, 1, ALL)

        async def both():
            reading = asyncio.create_task(taken(stage, 2, timeout=20))
            await asyncio.sleep(0.05)
            self.assertFalse(reading.done())
            write(stage, 2, {"a": torch.ones(1)})
            return await reading

        self.assertEqual(list(asyncio.run(both())), ["a"])
        with self.assertRaisesRegex(TimeoutError, "version 3.*within 0.2 s"):
            asyncio.run(taken(stage, 3))

    def test_what_would_be_wrong_weights_is_an_error(self):
        stage = self.stage(verify=True)
        write(stage, 4, ALL, step=40)
        with self.assertRaisesRegex(RuntimeError, "weights of step 40, and those of step 41"):
            asyncio.run(taken(stage, 4, step=41))
        with self.assertRaisesRegex(RuntimeError, "version 3 is gone"):
            asyncio.run(taken(stage, 3))
        with open(os.path.join(stage.folder, "weights"), "r+b") as file:
            file.seek(64)
            file.write(b"\xff")
        with self.assertRaisesRegex(RuntimeError, "`f32` of version 4 is not what the trainer wrote"):
            asyncio.run(taken(stage, 4, step=40))
        os.truncate(os.path.join(stage.folder, "weights"), 10)
        with self.assertRaisesRegex(RuntimeError, "has 10 bytes"):
            asyncio.run(taken(stage, 4, step=40))

    def test_a_version_that_is_written_over_while_it_is_read_is_an_error(self):
        stage = self.stage()
        write(stage, 1, ALL)

        async def slow():
            async for name, _ in read(stage.folder, 1, None, 1.0, True):
                if name == "f32":
                    write(stage, 2, ALL)

        with self.assertRaisesRegex(RuntimeError, "a mixture"):
            asyncio.run(slow())

    def test_a_writer_that_fails_tells_its_readers(self):
        stage = self.stage()
        stage.begin()
        stage.add("a", torch.ones(1))
        with self.assertRaisesRegex(ValueError, "`a` twice"):
            stage.add("a", torch.ones(1))
        with self.assertRaisesRegex(TypeError, "complex64"):
            stage.add("b", torch.zeros(1, dtype=torch.complex64))
        stage.fail(1, "ValueError: no")
        with self.assertRaisesRegex(RuntimeError, "could not write the weights: ValueError: no"):
            asyncio.run(taken(stage, 1))

    def test_a_dead_writer_ends_the_wait_at_once_and_its_memory_is_given_back(self):
        text = "import sys, time; from robustrl._staged import Stage\nprint(Stage().folder, flush=True); time.sleep(600)"
        source = os.path.join(os.path.dirname(__file__), "..", "src")
        with subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": source}) as writer:
            folder = writer.stdout.readline().strip()
            dead = Stage.__new__(Stage)
            dead.folder = folder
            # While it lives nobody takes its folder away.
            Stage().close()
            with self.assertRaises(TimeoutError):
                asyncio.run(taken(dead, 1))
            writer.kill()
            writer.wait()
            with self.assertRaisesRegex(RuntimeError, "has ended"):
                asyncio.run(taken(dead, 1, timeout=60))
        Stage().close()
        self.assertFalse(os.path.exists(folder))


if __name__ == "__main__":
    unittest.main()
