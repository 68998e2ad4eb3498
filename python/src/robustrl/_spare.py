"""A program that was started before it is known which rank it will be, and waits in ``attach()``.

``robust-shim`` starts it so where the job file keeps spares (``[restart] spares``): it imports what it needs, and is
nobody. The words are those of ``shared/src/spare.rs``, one packet each, over a descriptor that it inherits.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import json
import os
import socket
import sys

from ._wire import Refused

VARIABLE = "ROBUST_SPARE"
_MOST_BYTES = 128 << 10
_ELSEWHERE = "robustrl: a spare's program is to call attach() in the process that was started, before it starts others"
_DRIVER = "libcuda.so.1"
_NOT_INITIALIZED = 3
"""``CUDA_ERROR_NOT_INITIALIZED`` of ``cuda.h``."""


def wait() -> None:
    """Waits to be told which rank this is, where this is nobody yet: then the environment is what it would have been
    from the start, and output goes to the rank's log. Raises Refused where a device is in use already, which one it
    would have been being unknown, and SystemExit where nobody is left who could tell."""
    number = os.environ.pop(VARIABLE, None)
    if number is None:
        return
    if _device_is_in_use():
        raise Refused(
            "robustrl: a device was used before attach(), and a spare has none until then; call attach() before "
            "anything that asks for a device, torch.cuda.is_available() too"
        )
    try:
        shim = socket.socket(fileno=int(number))
    except (OSError, ValueError) as error:
        raise Refused(_ELSEWHERE) from error
    if (shim.family, shim.type) != (socket.AF_UNIX, socket.SOCK_SEQPACKET):
        # Something of the program's own that has that number here: it stays open.
        shim.detach()
        raise Refused(_ELSEWHERE)
    with shim:
        shim.set_inheritable(False)
        handed = _handed(shim)
    if handed is None:
        raise SystemExit(0)
    told, log = handed
    _log_to(log)
    os.environ.update(json.loads(told)["env"])


def _handed(shim: socket.socket) -> tuple[bytes, int] | None:
    """What makes this program a rank, and the rank's log. None where the shim is gone, or has another program started
    since this one answered too late: that one is the rank then, and this one is to do nothing as it."""
    try:
        shim.send(b"ready")
        told, log = _receive(shim)
        if not told or log is None:
            return None
        shim.send(b"taken")
        return (told, log) if shim.recv(16) == b"go" else None
    except ConnectionError:
        return None


def _receive(shim: socket.socket) -> tuple[bytes, int | None]:
    """A packet, and the descriptor beside it."""
    room = array.array("i", [0])
    told, beside, _, _ = shim.recvmsg(_MOST_BYTES, socket.CMSG_SPACE(room.itemsize))
    for level, kind, data in beside:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS) and len(data) >= room.itemsize:
            return told, array.array("i", data[: room.itemsize])[0]
    return told, None


def _log_to(log: int) -> None:
    """What is written from now on is the rank's."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):
            stream.flush()
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)


def _device_is_in_use() -> bool:
    """Whether CUDA's driver is up in this process: it reads once, then, which devices there are."""
    try:
        with open("/proc/self/maps") as maps:
            if not any("libcuda.so" in line for line in maps):
                return False
        count = ctypes.c_int()
        return ctypes.CDLL(_DRIVER).cuDeviceGetCount(ctypes.byref(count)) != _NOT_INITIALIZED
    except (OSError, AttributeError):
        # It cannot be asked, so that nothing could have been done with it here.
        return False
