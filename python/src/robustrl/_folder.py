"""A version's folder in shared memory, as ``robust-shim`` names it."""

from __future__ import annotations

from pathlib import Path


def weights_file(folder: str) -> Path:
    """The safetensors file of a version's folder. Raises FileNotFoundError before anything is loaded."""
    file = Path(folder) / "model.safetensors"
    if not file.is_file():
        raise FileNotFoundError(f"robustrl: {file} is not there; the shim and the engine must share /dev/shm")
    return file
