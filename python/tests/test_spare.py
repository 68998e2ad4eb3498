"""A program that waits in attach(), and the words that it and its robust-shim say."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

from robustrl import Refused, _spare

SOURCE = os.path.join(os.path.dirname(__file__), "..", "src")

# What a trainer does around attach(); the package's own imports torch, which this needs nothing of.
PROGRAM = """
import os, sys
from robustrl import _spare
print("imported")
place = os.environ["RANK"]
_spare.wait()
print("said", place, "then", os.environ["RANK"], os.environ["KEPT"], "ROBUST_SPARE" in os.environ)
print("and an error", file=sys.stderr)
os.system("echo of a child $RANK")
"""


class Waits(unittest.TestCase):
    def start(self, program=PROGRAM):
        """The program, and the shim's end of what it waits on."""
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.addCleanup(ours.close)
        ours.settimeout(20)
        environment = {**os.environ, "PYTHONPATH": SOURCE, "RANK": "unknown", "KEPT": "kept", _spare.VARIABLE: str(its.fileno())}
        environment["PYTHONUNBUFFERED"] = "1"
        child = subprocess.Popen(
            [sys.executable, "-c", program],
            env=environment,
            pass_fds=[its.fileno()],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        its.close()
        self.addCleanup(child.wait)
        self.addCleanup(child.kill)
        self.addCleanup(child.stdout.close)
        return child, ours

    def hand_over(self, ours, environment):
        log = tempfile.TemporaryFile("w+")
        self.addCleanup(log.close)
        told = json.dumps({"argv": ["python", "train.py"], "env": environment}).encode()
        socket.send_fds(ours, [told], [log.fileno()])
        return log

    def test_it_is_nobody_until_it_is_told_and_then_has_its_environment_and_its_log(self):
        child, ours = self.start()
        self.assertEqual(ours.recv(16), b"ready")
        log = self.hand_over(ours, [["RANK", "3"], ["ROBUST_SOCKET", "/a/socket"]])
        self.assertEqual(ours.recv(16), b"taken")
        ours.send(b"go")
        before, _ = child.communicate(timeout=20)
        self.assertEqual((child.returncode, before), (0, "imported\n"))
        log.seek(0)
        self.assertEqual(log.read(), "said unknown then 3 kept False\nand an error\nof a child 3\n")
        # Nobody else has the socket, and it is not used again.
        self.assertEqual(ours.recv(16), b"")

    def test_one_that_answers_too_late_ends_and_does_nothing_as_the_rank(self):
        child, ours = self.start()
        self.assertEqual(ours.recv(16), b"ready")
        log = self.hand_over(ours, [["RANK", "3"]])
        # Its answer is not read: another program was started.
        ours.close()
        said, _ = child.communicate(timeout=20)
        self.assertEqual((child.returncode, said), (0, "imported\n"))
        log.seek(0)
        self.assertEqual(log.read(), "")

    def test_one_that_is_told_the_end_after_its_answer_is_not_the_rank_either(self):
        child, ours = self.start()
        self.assertEqual(ours.recv(16), b"ready")
        log = self.hand_over(ours, [["RANK", "3"]])
        self.assertEqual(ours.recv(16), b"taken")
        ours.close()
        said, _ = child.communicate(timeout=20)
        self.assertEqual((child.returncode, said), (0, "imported\n"))
        log.seek(0)
        self.assertEqual(log.read(), "")

    def test_where_the_shim_is_gone_it_ends_and_does_nothing_as_nobody(self):
        child, ours = self.start()
        self.assertEqual(ours.recv(16), b"ready")
        ours.close()
        said, _ = child.communicate(timeout=20)
        self.assertEqual((child.returncode, said), (0, "imported\n"))

    def test_one_that_dies_while_it_waits_is_seen_by_the_end_of_its_socket(self):
        child, ours = self.start()
        self.assertEqual(ours.recv(16), b"ready")
        child.send_signal(signal.SIGKILL)
        self.assertEqual(ours.recv(16), b"")

    def test_a_process_that_does_not_have_the_descriptor_is_told_so(self):
        with tempfile.TemporaryFile() as other, mock.patch.dict(os.environ, {_spare.VARIABLE: str(other.fileno())}):
            with self.assertRaisesRegex(Refused, "in the process that was started"):
                _spare.wait()

    def test_a_socket_of_the_programs_own_that_has_the_number_is_left_as_it_is(self):
        ours, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with ours, other, mock.patch.dict(os.environ, {_spare.VARIABLE: str(other.fileno())}):
            with self.assertRaisesRegex(Refused, "in the process that was started"):
                _spare.wait()
            ours.setblocking(False)
            with self.assertRaises(BlockingIOError):
                ours.recv(16)
            other.send(b"open")
            self.assertEqual(ours.recv(16), b"open")

    def test_one_that_is_no_spare_does_not_wait(self):
        with mock.patch.dict(os.environ):
            os.environ.pop(_spare.VARIABLE, None)
            self.assertIsNone(_spare.wait())


class Devices(unittest.TestCase):
    def in_use(self, maps, count):
        driver = mock.Mock()
        driver.cuDeviceGetCount.return_value = count
        opened = mock.patch("builtins.open", mock.mock_open(read_data=maps))
        with opened, mock.patch("ctypes.CDLL", return_value=driver):
            return _spare._device_is_in_use()

    def test_the_driver_is_asked_only_where_it_is_loaded_and_says_whether_it_is_up(self):
        libc, cuda = "7f00 r-xp /lib/libc.so.6\n", "7f10 r-xp /lib/libcuda.so.550.54\n"
        self.assertFalse(self.in_use(libc, 0))
        self.assertFalse(self.in_use(libc + cuda, 3))
        self.assertTrue(self.in_use(libc + cuda, 0))
        # Up, and without a device.
        self.assertTrue(self.in_use(libc + cuda, 100))

    def test_a_spare_that_used_a_device_does_not_wait(self):
        with mock.patch.dict(os.environ, {_spare.VARIABLE: "99"}), mock.patch.object(_spare, "_device_is_in_use", return_value=True):
            with self.assertRaisesRegex(Refused, "a device was used before attach"):
                _spare.wait()


if __name__ == "__main__":
    unittest.main()
