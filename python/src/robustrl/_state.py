"""A rank's state: what ``state_dict()`` of its objects says, as tensors with names, and back.

Tensors of a ``DTensor`` (FSDP2) are taken as this rank's local shards, so a state fits the same number of
ranks only. What is no tensor (numbers, texts, lists, dictionaries) is kept as JSON in a tensor of its own.
"""

from __future__ import annotations

import json
from typing import Any, Iterator, Mapping

import torch

PLAIN = "__plain__"


def flatten(objects: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """Tensors by their path (``optim/state/0/exp_avg``), and the rest as JSON under ``PLAIN``.

    Raises TypeError for what is neither a tensor nor plain, by its path.
    """
    tensors: dict[str, torch.Tensor] = {}
    skeleton = {name: _take(name, _state_of(name, thing), tensors) for name, thing in objects.items()}
    text = json.dumps(skeleton, allow_nan=True).encode()
    tensors[PLAIN] = torch.frombuffer(bytearray(text), dtype=torch.uint8)
    return tensors


def restore(objects: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> None:
    """Gives each object its state. Raises KeyError where the state has other objects than these."""
    skeleton = json.loads(bytes(tensors[PLAIN].tolist()))
    if set(skeleton) != set(objects):
        raise KeyError(
            f"robustrl: the kept state has {sorted(skeleton)} and restore() was given {sorted(objects)}; "
            "give it the same names in each life of the program"
        )
    for name, thing in objects.items():
        before = _state_of(name, thing)
        if isinstance(thing, torch.optim.Optimizer):
            # A new optimiser has no state yet; what it will have lies as its parameters do.
            params = [param for group in thing.param_groups for param in group["params"]]
            before = {"state": {at: _Always(param) for at, param in enumerate(params)}}
        state = _give(skeleton[name], tensors, before)
        thing.load_state_dict(state)


class _Always(dict):  # type: ignore[type-arg]
    """A dictionary that has one thing under every key."""

    def __init__(self, thing: Any) -> None:
        super().__init__()
        self._thing = thing

    def get(self, _key: Any, _default: Any = None) -> Any:
        return self._thing


def _state_of(name: str, thing: Any) -> Any:
    if not (hasattr(thing, "state_dict") and hasattr(thing, "load_state_dict")):
        raise TypeError(f"robustrl: `{name}` is a {type(thing).__name__}; what is kept must have state_dict() and load_state_dict()")
    return thing.state_dict()


def _take(path: str, value: Any, tensors: dict[str, torch.Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        tensors[path] = _local(value)
        return {"shard" if hasattr(value, "to_local") else "tensor": path}
    if isinstance(value, Mapping):
        return {"map": [[_key(path, key), _take(f"{path}/{key}", item, tensors)] for key, item in value.items()]}
    if isinstance(value, (list, tuple)):
        kind = "list" if isinstance(value, list) else "tuple"
        return {kind: [_take(f"{path}/{at}", item, tensors) for at, item in enumerate(value)]}
    if value is None or isinstance(value, (bool, int, float, str)):
        return {"plain": value}
    raise TypeError(
        f"robustrl: `{path}` is a {type(value).__name__}, which cannot be kept; state must be tensors, numbers, "
        "texts, lists and dictionaries of them"
    )


def _key(path: str, key: Any) -> Any:
    if isinstance(key, (int, str)) and not isinstance(key, bool):
        return key
    raise TypeError(f"robustrl: `{path}` has the key {key!r}; keys must be texts or whole numbers")


def _give(kept: Any, tensors: Mapping[str, torch.Tensor], before: Any) -> Any:
    """What was kept, in the shape that it had; a sharded tensor's local part goes where one is now."""
    (kind, value), = kept.items()
    if kind == "tensor":
        return tensors[value].clone()
    if kind == "shard":
        return _like(value, tensors[value], before)
    if kind == "map":
        old = before if isinstance(before, Mapping) else {}
        return {key: _give(item, tensors, old.get(key)) for key, item in value}
    if kind in ("list", "tuple"):
        there = before if isinstance(before, (list, tuple)) else ()
        items = [_give(item, tensors, there[at] if at < len(there) else None) for at, item in enumerate(value)]
        return items if kind == "list" else tuple(items)
    return value


def _local(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.detach()
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def _like(path: str, kept: torch.Tensor, before: Any) -> torch.Tensor:
    if not hasattr(before, "to_local"):
        raise ValueError(f"robustrl: `{path}` was kept as one rank's shard, and is not sharded now; shard the model before restore()")
    local = before.to_local()
    if local.shape != kept.shape:
        raise ValueError(
            f"robustrl: `{path}` was kept as a shard of {tuple(kept.shape)} and this rank's is {tuple(local.shape)}: "
            "a state fits the same number of ranks only"
        )
    from torch.distributed.tensor import DTensor

    return DTensor.from_local(
        kept.clone().to(local.device), before.device_mesh, before.placements, shape=before.shape, stride=before.stride()
    )


def pairs(named: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Names and tensors of a module, or of pairs as they are; a sharded tensor has the shape of the whole."""
    of = named.named_parameters() if hasattr(named, "named_parameters") else named
    for name, tensor in of.items() if isinstance(of, Mapping) else of:
        yield name, tensor.detach()


def gathered(named: Iterator[tuple[str, torch.Tensor]]) -> Iterator[tuple[str, torch.Tensor]]:
    """What an iterator yields, each copied to the host before the next is asked for: it may gather them one by one, into
    the same memory."""
    for name, tensor in named:
        yield name, whole(tensor.detach()).to("cpu", copy=True)


def whole(tensor: torch.Tensor) -> torch.Tensor:
    """The full tensor. Of a sharded one every rank gathers all, and all ranks must ask."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
