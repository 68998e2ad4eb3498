"""A state that any number of ranks can take up: `torch.distributed.checkpoint` plans who keeps what, and the
shim's slots hold it (``trainer.command.snapshot = "dcp"``).

Modules and optimisers are asked through ``torch.distributed.checkpoint.state_dict``, so that an optimiser's state goes by
its parameters' names and not by their numbers, and sharded tensors (FSDP2, tensor parallel) know where they belong.
"""

from __future__ import annotations

import io
import json
import pickle
from typing import Any, Mapping

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.checkpoint.metadata import MetadataIndex
from torch.distributed.checkpoint.planner import LoadItemType, SavePlan
from torch.distributed.checkpoint.state_dict import (
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)

METADATA = "__dcp__"
"""What rank 0 keeps besides: the state's ``torch.distributed.checkpoint.metadata.Metadata``."""


def parts(objects: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """This rank's tensors of the state of these objects, by name. All ranks call it: they tell each other what they have.

    Raises ValueError for an optimiser whose parameters are no object's.
    """
    rank = dist.get_rank() if dist.is_initialized() else 0
    planner = DefaultSavePlanner()
    planner.set_up_planner(_states(objects), is_coordinator=rank == 0)
    # Every rank makes the same plan of what all have, so nobody has to be told his.
    plans, metadata = planner.create_global_plan(_of_all(planner.create_local_plan()))
    plan = planner.finish_plan(plans[rank])
    tensors = {}
    for item in plan.items:
        data = planner.resolve_data(item)
        tensors[_name(item.index)] = _bytes(data.getvalue()) if isinstance(data, io.BytesIO) else data.detach()
    if rank == 0:
        tensors[METADATA] = _bytes(pickle.dumps(metadata))
    return tensors


def take_up(objects: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> None:
    """Gives the objects the state whose tensors, of all ranks that kept it, these are. Each rank reads what it needs.

    Raises KeyError and what the planner raises where the state is another one than that of these objects.
    """
    if METADATA not in tensors:
        raise KeyError('robustrl: the kept state is none of `snapshot = "dcp"`; begin with another --state-dir, or write "slot"')
    metadata = pickle.loads(bytes(tensors[METADATA].tolist()))
    states = _states(objects)
    planner = DefaultLoadPlanner()
    planner.set_up_planner(states, metadata, is_coordinator=False)
    plan = planner.finish_plan(planner.create_global_plan([planner.create_local_plan()])[0])
    for item in plan.items:
        source = tensors[_name(item.storage_index)]
        if item.type == LoadItemType.BYTE_IO:
            planner.load_bytes(item, io.BytesIO(bytes(source.tolist())))
            continue
        for dim, (start, length) in enumerate(zip(item.storage_offsets, item.lengths)):
            source = source.narrow(dim, start, length)
        target = planner.resolve_tensor(item).detach()
        target.copy_(source)
        planner.commit_tensor(item, target)
    for name, thing in objects.items():
        if isinstance(thing, torch.nn.Module):
            set_model_state_dict(thing, states[name])
        elif isinstance(thing, torch.optim.Optimizer):
            set_optimizer_state_dict(_owner(name, thing, objects), thing, optim_state_dict=states[name])
        else:
            thing.load_state_dict(states[name])


def _states(objects: Mapping[str, Any]) -> dict[str, Any]:
    states: dict[str, Any] = {}
    for name, thing in objects.items():
        if isinstance(thing, torch.nn.Module):
            states[name] = get_model_state_dict(thing)
        elif isinstance(thing, torch.optim.Optimizer):
            states[name] = get_optimizer_state_dict(_owner(name, thing, objects), thing)
        else:
            states[name] = thing.state_dict()
    return states


def _owner(name: str, optimizer: torch.optim.Optimizer, objects: Mapping[str, Any]) -> torch.nn.Module:
    """The module whose parameters an optimiser has."""
    wanted = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    for thing in objects.values():
        if isinstance(thing, torch.nn.Module) and wanted <= {id(parameter) for parameter in thing.parameters()}:
            return thing
    raise ValueError(f"robustrl: no module of those that restore() was given has the parameters of the optimiser `{name}`; give it, too")


def _of_all(plan: SavePlan) -> list[SavePlan]:
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return [plan]
    plans: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(plans, plan)
    return plans


def _name(index: MetadataIndex) -> str:
    """The same for who writes a part and who reads it."""
    return json.dumps([index.fqn, None if index.offset is None else list(index.offset)])


def _bytes(data: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)
