"""Weights that one process writes and others read: one file in a folder that they share, and beside it what is
in it.

::

    FOLDER/owner      locked (flock) by the writer for as long as it lives
    FOLDER/weights    the tensors' bytes, each at a multiple of 64
    FOLDER/version    JSON: the version's number and its tensors, renamed into place once all bytes are written

The file is written over by each version, so that only the first one pays for new memory. A reader therefore ends
with a look at ``version``: another number there than at its beginning is an error, never a mixture.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import shutil
import tempfile
import time
import zlib
from typing import Any, AsyncIterator

import torch

from ._files import Mapped, described

SHARED_MEMORY = "/dev/shm"
_PREFIX = "robustrl-weights-"
_ALIGN = 64
_LOOK_EVERY = 0.01


class Stage:
    """The writer's folder. One at a time writes, and removes the folder when it closes or the next one starts."""

    folder: str
    """Where readers are to look."""

    def __init__(self, parent: str | None = None, verify: bool = False) -> None:
        """``parent``: a folder that writer and readers share; shared memory by default. ``verify``: each tensor's
        CRC-32 is written beside it, and compared by readers."""
        self._verify = verify
        if parent is None:
            _sweep(SHARED_MEMORY)
        self.folder = tempfile.mkdtemp(prefix=_PREFIX, dir=parent or SHARED_MEMORY)
        # Locked before it has its name, so that nobody finds it without an owner.
        unnamed = os.path.join(self.folder, "owner.new")
        self._owner = os.open(unnamed, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(self._owner, fcntl.LOCK_EX)
        os.rename(unnamed, os.path.join(self.folder, "owner"))
        self._file = os.open(os.path.join(self.folder, "weights"), os.O_RDWR | os.O_CREAT, 0o600)
        self._open = [self._file, self._owner]
        self._placed: dict[str, dict[str, Any]] = {}
        self._end = 0

    def begin(self) -> None:
        """What lies there is no version any more."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(self.folder, "version"))
        self._placed, self._end = {}, 0

    def add(self, name: str, tensor: torch.Tensor) -> None:
        """Writes a tensor behind those before. It may change as soon as the call returns.

        Raises ValueError for a name that was there already, TypeError for a dtype that cannot be kept.
        """
        if name in self._placed:
            raise ValueError(f"robustrl: the weights have `{name}` twice")
        placed = described(name, tensor)
        content = _bytes(tensor.detach().to("cpu"))
        placed["start"] = -(-self._end // _ALIGN) * _ALIGN
        placed["end"] = self._end = placed["start"] + len(content)
        if self._verify:
            placed["crc32"] = zlib.crc32(content)
        at = 0
        while at < len(content):
            at += os.pwrite(self._file, content[at:], placed["start"] + at)
        self._placed[name] = placed

    def announce(self, number: int, step: int | None) -> int:
        """All tensors are there: readers of this number begin. Returns the bytes that they are."""
        # On a network's filesystem other hosts see bytes for certain that were synced before they open the file.
        os.fsync(self._file)
        self._say({"number": number, "step": step, "size": self._end, "tensors": list(self._placed.values())})
        return self._end

    def fail(self, number: int, reason: str) -> None:
        """There will be no version of this number: readers end with the reason instead of waiting."""
        self._say({"number": number, "error": reason})

    def views(self) -> dict[str, torch.Tensor]:
        """The tensors as they lie in the file, not copied: good until ``begin``."""
        file = Mapped(os.path.join(self.folder, "weights"))
        return {name: file.tensor(0, placed) for name, placed in self._placed.items()}

    def close(self) -> None:
        """Removes the folder and gives its memory back. Closed already, nothing happens."""
        shutil.rmtree(self.folder, ignore_errors=True)
        for file in self._open:
            os.close(file)
        self._open.clear()

    def _say(self, told: dict[str, Any]) -> None:
        unnamed = os.path.join(self.folder, "version.new")
        with open(unnamed, "w") as file:
            json.dump(told, file)
        os.rename(unnamed, os.path.join(self.folder, "version"))


async def read(
    folder: str, number: int, step: int | None, timeout: float, local: bool
) -> AsyncIterator[tuple[str, torch.Tensor]]:
    """Waits for the version, and yields its tensors as they lie in the file, on the CPU: to be used before the
    writer's next ``begin``.

    ``timeout``: seconds to wait for its beginning. ``local``: writer and reader share one kernel, so the writer's
    death shows in its lock, and ends the wait at once.

    Raises TimeoutError, and RuntimeError where the writer failed or died, the version is another one than was
    asked for, or its bytes are not those that were written.
    """
    told = await _announced(folder, number, time.monotonic() + timeout, timeout, local)
    if told["step"] != step:
        raise RuntimeError(f"robustrl: the trainer wrote the weights of step {told['step']}, and those of step {step} were asked for")
    if told["tensors"]:
        path = os.path.join(folder, "weights")
        if os.path.getsize(path) < told["size"]:
            raise RuntimeError(f"robustrl: {path} has {os.path.getsize(path)} bytes, and the version has {told['size']}; is it one file on both hosts?")
        file = Mapped(path)
        for placed in told["tensors"]:
            tensor = file.tensor(0, placed)
            if "crc32" in placed and zlib.crc32(_bytes(tensor)) != placed["crc32"]:
                raise RuntimeError(f"robustrl: `{placed['name']}` of version {number} is not what the trainer wrote (CRC-32)")
            yield placed["name"], tensor
    after = _version(folder)
    if after is None or after["number"] != number:
        raise RuntimeError(f"robustrl: version {number} was written over while it was read; what was read of it is a mixture")


def _version(folder: str) -> dict[str, Any] | None:
    try:
        with open(os.path.join(folder, "version")) as file:
            told: dict[str, Any] = json.load(file)
            return told
    except FileNotFoundError:
        return None


async def _announced(folder: str, number: int, deadline: float, timeout: float, local: bool) -> dict[str, Any]:
    while True:
        # Looked at before the version: a writer that announces and ends has not died on the way.
        dead = local and not _owned(folder)
        told = _version(folder)
        if told is not None and told["number"] == number:
            if "error" in told:
                raise RuntimeError(f"robustrl: the trainer could not write the weights: {told['error']}")
            return told
        if told is not None and told["number"] > number:
            raise RuntimeError(f"robustrl: version {number} is gone, the trainer is at {told['number']}")
        if dead:
            raise RuntimeError(f"robustrl: the trainer that was to write version {number} to {folder} has ended")
        if time.monotonic() >= deadline:
            raise TimeoutError(f"robustrl: the trainer did not write version {number} to {folder} within {timeout:g} s")
        await asyncio.sleep(_LOOK_EVERY)


def _bytes(tensor: torch.Tensor) -> memoryview:
    return memoryview(tensor.contiguous().view(-1).view(torch.uint8).numpy())


def _owned(folder: str) -> bool:
    """Whether the folder's writer lives."""
    try:
        file = os.open(os.path.join(folder, "owner"), os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(file)
    return False


def _sweep(parent: str) -> None:
    """Removes what writers left that were killed: memory that nobody else would give back."""
    for name in os.listdir(parent):
        folder = os.path.join(parent, name)
        with contextlib.suppress(OSError):
            mine = name.startswith(_PREFIX) and os.stat(folder).st_uid == os.getuid()
            if mine and os.path.exists(os.path.join(folder, "owner")) and not _owned(folder):
                shutil.rmtree(folder, ignore_errors=True)
