"""The socket to the rank's ``robust-shim``: one JSON object a line, a question and its answer in turn.

The protocol is written down in ``daemon/shim/src/trainer/words.rs``.
"""

from __future__ import annotations

import json
import os
import socket
from typing import Any

PROTOCOL = 3


class Refused(RuntimeError):
    """robustd's side refused what the program asked for; the text says why and what to do."""


class JobOver(Exception):
    """The job is over for this rank, in the middle of something: end the program."""


class Wire:
    """A connection to the shim. Not to be shared between threads or with a forked process."""

    def __init__(self, path: str) -> None:
        self._pid = os.getpid()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.connect(path)
        except OSError as error:
            self._socket.close()
            raise ConnectionError(
                f"robustrl: cannot reach the rank's robust-shim at {path} ({error}); ROBUST_SOCKET is set by "
                "it for the program it starts: unset it to run the program alone"
            ) from error
        self._lines = self._socket.makefile("rb")

    def close(self) -> None:
        """Speaks no more."""
        self._lines.close()
        self._socket.close()

    def ask(self, what: str, **fields: Any) -> dict[str, Any]:
        """Asks and waits for the answer. Raises Refused, or JobOver where the job ends instead."""
        if os.getpid() != self._pid:
            raise Refused("robustrl: this process was forked from the one that attached, which alone may speak for the rank")
        try:
            self._socket.sendall(json.dumps({"ask": what, **fields}).encode() + b"\n")
            line = self._lines.readline()
        except OSError:
            line = b""
        if not line:
            # The shim is gone, and this program with it in a moment.
            raise JobOver("the rank's robust-shim ended")
        answer = json.loads(line)
        if answer["answer"] == "error":
            raise Refused(f"robustrl: {answer['reason']}")
        if answer["answer"] == "over":
            raise JobOver("the job is over")
        return answer
