"""The package without a daemon, and its half of what it shares with robust-shim."""

import json
import os
import socket
import struct
import tempfile
import threading
import unittest
from unittest import mock

import torch

import robustrl
from robustrl._files import Mapped, described, read_safetensors
from robustrl._page import Page
from robustrl._wire import Wire


def page(folder):
    path = os.path.join(folder, "page")
    with open(path, "wb") as file:
        file.write(b"RBSTPHAS" + struct.pack("<I", 1) + bytes(4096 - 12))
    return path


class Alone(unittest.TestCase):
    def test_without_a_daemon_everything_is_a_no_op(self):
        with mock.patch.dict(os.environ, {"RANK": "1", "WORLD_SIZE": "2"}):
            os.environ.pop("ROBUST_SOCKET", None)
            job = robustrl.attach()
        self.assertEqual((job.rank, job.world_size, job.attached), (1, 2, False))
        model = torch.nn.Linear(2, 2)
        self.assertEqual(job.restore({"model": model}), 0)
        with job.phase("update"):
            job.commit(loss=0.5)
        job.publish(model)
        self.assertEqual(list(job.batches()), [])

    def test_a_phase_that_nobody_knows_is_refused_with_those_that_are_known(self):
        told = {"rank": 0, "world_size": 1, "local_rank": 0, "generation": 1, "incarnation": 1, "job": "j", "model": "", "level": "phases"}
        with tempfile.TemporaryDirectory() as folder:
            told |= {"page": page(folder), "keeps_state": False, "reshards": False, "phases": ["reward_model"]}
            job = robustrl.Job(object(), told)
            with job.phase("reward_model"), job.phase("update"):
                pass
            with self.assertRaisesRegex(ValueError, "no phase 'updat'.*old_logprob.*reward_model.*trainer.command.phases"):
                with job.phase("updat"):
                    pass


class Shared(unittest.TestCase):
    def test_phases_are_written_where_the_shim_reads_them(self):
        with tempfile.TemporaryDirectory() as folder:
            path = page(folder)
            written = Page(path)
            for step in range(70):
                written.enter("update", step)
            with open(path, "rb") as file:
                content = file.read()
        self.assertEqual(struct.unpack_from("<Q", content, 16)[0], 70)
        # The 70th entry lies where the 7th lay.
        number, step = struct.unpack_from("<QQ", content, 64 + 6 * 64)
        self.assertEqual((number, step), (70, 69))
        self.assertTrue(content[64 + 6 * 64 + 24 :].startswith(b"update\0"))

    def test_tensors_are_read_and_written_in_place(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "file")
            with open(path, "wb") as file:
                file.write(bytes(100))
            placed = {"dtype": "BF16", "shape": [2, 2], "start": 4, "end": 12}
            Mapped(path, writable=True).tensor(8, placed).copy_(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
            self.assertEqual(Mapped(path).tensor(8, placed).tolist(), [[1.0, 2.0], [3.0, 4.0]])
        self.assertEqual(described("a", torch.zeros(3, dtype=torch.int64)), {"name": "a", "dtype": "I64", "shape": [3]})
        with self.assertRaisesRegex(TypeError, "`a` is torch.complex64"):
            described("a", torch.zeros(1, dtype=torch.complex64))

    def test_memory_is_pinned_once_and_given_back_only_where_the_driver_pinned_it(self):
        with tempfile.NamedTemporaryFile() as file:
            file.write(bytes(100))
            file.flush()
            for code, pinned in ((0, True), (2, False)):
                driver = mock.Mock()
                driver.cudaHostRegister.return_value = code
                cudart = mock.patch("torch.cuda.cudart", return_value=driver)
                with cudart, mock.patch("robustrl._files._forget_error") as forgotten:
                    mapped = Mapped(file.name, writable=True)
                    self.assertEqual([mapped.pin(), mapped.pin()], [pinned, pinned])
                    self.assertEqual(driver.cudaHostRegister.call_args.args[1:], (100, 0))
                    driver.cudaHostRegister.assert_called_once()
                    mapped.unpin()
                    mapped.unpin()
                    self.assertEqual(driver.cudaHostUnregister.call_count, int(pinned))
                    self.assertEqual(forgotten.call_count, int(not pinned))

    def test_a_batch_goes_to_a_device_whole_and_keeps_its_numbers(self):
        columns = ("ids", "lengths", "mask", "rollout_logprobs", "advantages", "rewards", "trajectories")
        batch = robustrl.Batch(step=3, batch_tokens=7, **{name: torch.zeros(2) for name in columns})
        there = batch.to("meta")
        self.assertEqual({getattr(there, name).device.type for name in columns}, {"meta"})
        self.assertEqual((there.step, there.batch_tokens, batch.ids.device.type), (3, 7, "cpu"))

    def test_a_batch_is_read_from_a_safetensors_file(self):
        header = json.dumps({"__metadata__": {}, "ids": {"dtype": "I64", "shape": [1, 2], "data_offsets": [0, 16]}}).encode()
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "batch")
            with open(path, "wb") as file:
                file.write(struct.pack("<Q", len(header)) + header + struct.pack("<qq", 5, 6))
            self.assertEqual(dict(read_safetensors(path))["ids"].tolist(), [[5, 6]])


class Asked(unittest.TestCase):
    def answered(self, *answers):
        """A shim that says these, one after the other."""
        folder = tempfile.mkdtemp()
        path = os.path.join(folder, "socket")
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path)
        listener.listen()

        def serve():
            peer, _ = listener.accept()
            with peer, listener, peer.makefile("rb") as lines:
                for answer in answers:
                    lines.readline()
                    peer.sendall(json.dumps(answer).encode() + b"\n")

        threading.Thread(target=serve, daemon=True).start()
        wire = Wire(path)
        self.addCleanup(wire.close)
        return wire

    def test_a_refusal_is_an_exception_with_the_shims_sentence(self):
        wire = self.answered({"answer": "error", "reason": "call attach() once"})
        with self.assertRaisesRegex(robustrl.Refused, "call attach\\(\\) once"):
            wire.ask("attach")

    def test_the_end_of_the_job_and_that_of_the_shim_are_told_apart_from_refusals(self):
        wire = self.answered({"answer": "over"})
        with self.assertRaises(robustrl.JobOver):
            wire.ask("batch")
        with self.assertRaises(robustrl.JobOver):
            wire.ask("batch")

    def test_a_socket_that_is_not_there_says_what_to_do(self):
        with self.assertRaisesRegex(ConnectionError, "unset it to run the program alone"):
            Wire("/no/such/socket")


if __name__ == "__main__":
    unittest.main()
