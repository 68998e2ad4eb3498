"""The page on which the program writes its phases; ``daemon/shim/src/trainer/page.rs`` describes its bytes."""

from __future__ import annotations

import mmap
import struct
import time

PHASES = (
    "init",
    "load_checkpoint",
    "await_batch",
    "reshard",
    "ref_logprob",
    "old_logprob",
    "advantage",
    "update",
    "snapshot",
    "publish",
    "loop",
)
_MAGIC = b"RBSTPHAS"
_ENTRY = 64
_ENTRIES = 63
_NAME = 40


class Page:
    """Writes phases: no message, no lock, and what was written last is there when the program stands still."""

    def __init__(self, path: str) -> None:
        with open(path, "r+b") as file:
            self._map = mmap.mmap(file.fileno(), 4096)
        if self._map[:8] != _MAGIC:
            raise RuntimeError(f"robustrl: {path} is no page of phases")
        self._count = struct.unpack_from("<Q", self._map, 16)[0]

    def enter(self, phase: str, step: int) -> None:
        """The program does this now, about this step."""
        self._count += 1
        at = _ENTRY + (self._count - 1) % _ENTRIES * _ENTRY
        name = phase.encode().ljust(_NAME, b"\0")[:_NAME]
        struct.pack_into("<QQ", self._map, at + 8, step, time.monotonic_ns())
        self._map[at + 24 : at + _ENTRY] = name
        struct.pack_into("<Q", self._map, at, self._count)
        struct.pack_into("<Q", self._map, 16, self._count)
