"""Tensors in files that the shim has mapped, too: read and written in place, without numpy or torch of a
certain version, and without safetensors' own package."""

from __future__ import annotations

import contextlib
import json
import mmap
import struct
from typing import Any, Iterator

import torch

DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
_OF_NAME = {name: dtype for dtype, name in DTYPES.items()}


def described(name: str, tensor: torch.Tensor) -> dict[str, Any]:
    """A tensor as the protocol names it. Raises TypeError for a dtype that cannot be kept."""
    if tensor.dtype not in DTYPES:
        raise TypeError(f"robustrl: `{name}` is {tensor.dtype}; those that can be kept are {', '.join(map(str, DTYPES))}")
    return {"name": name, "dtype": DTYPES[tensor.dtype], "shape": list(tensor.shape)}


class Mapped:
    """A file in memory, and its tensors as torch sees them. Keeps the mapping while any of them lives."""

    def __init__(self, path: str, writable: bool = False) -> None:
        with open(path, "r+b" if writable else "rb") as file:
            access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_COPY
            self._map = mmap.mmap(file.fileno(), 0, access=access)
        self._pinned: bool | None = None

    def __len__(self) -> int:
        return len(self._map)

    def pin(self) -> bool:
        """Has the CUDA driver pin the file's memory, so that a device copies into it by itself; whether it did. Asked
        once: memory that cannot be pinned (a limit, a file on a disk) is written through the driver's own buffers."""
        if self._pinned is None:
            self._pinned = torch.cuda.cudart().cudaHostRegister(self._start(), len(self), 0) == 0
            if not self._pinned:
                _forget_error()
        return self._pinned

    def unpin(self) -> None:
        """Before another mapping takes its place: pinned memory is not given back by itself."""
        if self._pinned:
            torch.cuda.cudart().cudaHostUnregister(self._start())
        self._pinned = None

    def _start(self) -> int:
        return torch.frombuffer(self._map, dtype=torch.uint8).data_ptr()

    def tensor(self, data: int, placed: dict[str, Any]) -> torch.Tensor:
        """The tensor that lies there: of the file's memory itself, not a copy."""
        dtype = _OF_NAME[placed["dtype"]]
        count = (placed["end"] - placed["start"]) // dtype.itemsize
        if count == 0:
            return torch.empty(placed["shape"], dtype=dtype)
        flat = torch.frombuffer(self._map, dtype=dtype, count=count, offset=data + placed["start"])
        return flat.view(placed["shape"])


def _forget_error() -> None:
    """CUDA tells the error of a call again at the next launch of a kernel, and that is to be ours, not the program's."""
    with contextlib.suppress(RuntimeError):
        torch.zeros(1, device="cuda")


def read_safetensors(path: str) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors of a file, each a copy: the file is written over later."""
    file = Mapped(path)
    (length,) = struct.unpack_from("<Q", file._map, 0)
    header = json.loads(file._map[8 : 8 + length])
    for name, info in header.items():
        if name == "__metadata__":
            continue
        start, end = info["data_offsets"]
        placed = {"dtype": info["dtype"], "shape": info["shape"], "start": start, "end": end}
        yield name, file.tensor(8 + length, placed).clone()
