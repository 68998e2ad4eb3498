"""verl's checkpoint engine ``robustrl``: weights go to the engines of robustd, and to verl's own rollouts on the
trainer's host, without a collective between trainer and rollouts.

In verl's configuration::

    actor_rollout_ref.rollout.checkpoint_engine.backend=robustrl
    actor_rollout_ref.rollout.checkpoint_engine.custom_backend_module=robustrl.verl

The first rank of the trainer writes the tensors into shared memory as verl yields them. From there verl's rollout
workers read them in place, and :meth:`robustrl.Job.publish` takes them to the engines behind robustd's shims, where
robustd started verl's driver with ``trainer.command.level = "weights"``. See docs/verl.md.

Held against verl 0.9.1 (``verl/checkpoint_engine/base.py``).
"""

from __future__ import annotations

import atexit
import logging
import os
import socket
import time
from typing import Any, AsyncGenerator, Generator

import torch
from verl.checkpoint_engine.base import CheckpointEngine, CheckpointEngineRegistry
from verl.workers.rollout.utils import ensure_async_iterator

from ._job import Job, attach
from ._staged import Stage, read
from ._wire import Refused

BACKEND = "robustrl"
logger = logging.getLogger(__name__)

_DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}
Named = Generator[tuple[str, torch.Tensor], None, None]


@CheckpointEngineRegistry.register(BACKEND)
class RobustCheckpointEngine(CheckpointEngine):
    """One of verl's workers, of the trainer or of a rollout, as it takes part in an update of weights.

    Keyword arguments beyond verl's own come from ``checkpoint_engine.engine_kwargs.robustrl``:

    ``folder``: a folder that trainer and rollouts share, where they are on several hosts; shared memory by default.
    ``timeout_s``: seconds that a rollout waits for the trainer's weights, 1800 by default.
    ``rollout_dtype``: ``bfloat16``, ``float16`` or ``float32``: what floating-point weights are cast to; by default
    they are sent as the trainer yields them.
    ``verify``: each tensor's CRC-32 is compared by its readers; by default only in a ``folder``.
    ``publish``: ``True`` demands that robustd started the program, ``False`` keeps the weights from its engines; by
    default they go there where robustd started it.

    Raises ValueError for a ``rollout_dtype`` that is none of these.
    """

    def __init__(
        self,
        bucket_size: int,
        is_master: bool = False,
        folder: str | None = None,
        timeout_s: float = 1800.0,
        rollout_dtype: str | None = None,
        verify: bool | None = None,
        publish: bool | None = None,
    ) -> None:
        # Tensors lie whole in the file, so there is no bucket.
        del bucket_size
        if rollout_dtype is not None and rollout_dtype not in _DTYPES:
            raise ValueError(f"robustrl: rollout_dtype is {rollout_dtype!r}; those that are known are {', '.join(_DTYPES)}")
        self._is_master = is_master
        self._parent = folder
        self._timeout = float(timeout_s)
        self._dtype = _DTYPES[rollout_dtype] if rollout_dtype is not None else None
        self._verify = verify if verify is not None else folder is not None
        self._publish = publish
        self._stage: Stage | None = None
        self._job: Job | None = None
        self._number = 0
        self._place: dict[str, Any] | None = None

    # ---- verl's order: prepare, build_topology, init_process_group, send or receive, finalize ------

    def prepare(self) -> dict[str, Any]:
        """The trainer's first rank says where its weights will lie; from the others nothing is needed.

        Raises Refused where robustd started the program in a way that does not fit, see docs/verl.md.
        """
        if not self._is_master:
            return {}
        if self._stage is None:
            self._job = self._attached()
            self._stage = Stage(self._parent, self._verify)
            atexit.register(self._stage.close)
        self._number += 1
        self._stage.begin()
        return {
            "folder": self._stage.folder,
            "number": self._number,
            "host": socket.gethostname(),
            "local": self._parent is None,
        }

    @classmethod
    def build_topology(
        cls, actor_wg_world_size: int, rollout_world_size: int, metadata: list[dict[str, Any]]
    ) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
        """Everybody is told where the trainer's weights will lie; nobody meets anybody."""
        places = [told for told in metadata[:actor_wg_world_size] if told]
        if len(places) != 1:
            raise RuntimeError(f"robustrl: one rank of the trainer must write the weights, and {len(places)} said that they would")
        return {"place": places * actor_wg_world_size}, {"place": places * rollout_world_size}

    def init_process_group(self, place: dict[str, Any]) -> None:
        """There is no group: takes up where the weights will lie.

        Raises RuntimeError where this host cannot see the trainer's folder.
        """
        if not os.path.exists(os.path.join(place["folder"], "owner")):
            raise RuntimeError(
                f"robustrl: {socket.gethostname()} does not see {place['folder']}, where the trainer on {place['host']} "
                "writes its weights; on several hosts, or containers with a /dev/shm each, name a folder that all of "
                "them share: checkpoint_engine.engine_kwargs.robustrl.folder"
            )
        self._place = place

    def finalize(self) -> None:
        """The update is over. The trainer's memory is kept for the next one."""
        self._place = None

    @torch.no_grad()
    async def send_weights(self, weights: Named, global_steps: int | None = None) -> dict[str, float]:
        """Writes the weights where rollouts read them, and publishes them to robustd's engines.

        ``weights``: full tensors under Hugging Face's names, of any device. Every rank of the trainer must call it,
        for each takes part in gathering them; the first one alone writes. Returns figures for verl's log: bytes and
        seconds. Whatever fails here fails the rollouts that wait, too.
        """
        if not self._is_master:
            async for _ in ensure_async_iterator(weights):
                pass
            return {}
        assert self._stage is not None, "verl calls prepare() before each update"
        began = time.monotonic()
        try:
            async for name, tensor in ensure_async_iterator(weights):
                cast = self._dtype is not None and tensor.is_floating_point()
                self._stage.add(name, tensor.to(self._dtype) if cast else tensor)
            size = self._stage.announce(self._number, global_steps)
        except BaseException as error:
            self._stage.fail(self._number, f"{type(error).__name__}: {error}")
            raise
        written = time.monotonic()
        if self._job is not None:
            self._job.publish(self._stage.views())
        figures = {"write_s": written - began, "publish_s": time.monotonic() - written, "mbytes": size / (1 << 20)}
        return {f"checkpoint_engine/{name}": value for name, value in figures.items()}

    async def receive_weights(self, global_steps: int | None = None) -> AsyncGenerator[tuple[str, torch.Tensor], None]:
        """Yields the trainer's tensors on the CPU, as they lie in the shared file: each is to be copied before the
        update ends, as verl's adapters of vLLM and SGLang do.

        Raises TimeoutError, or RuntimeError where the trainer failed or ended, or the weights are not those of
        ``global_steps``.
        """
        assert self._place is not None, "verl calls init_process_group() before each update"
        place = self._place
        async for name, tensor in read(place["folder"], place["number"], global_steps, self._timeout, place["local"]):
            yield name, tensor

    # ---- robustd --------------------------------------------------------------------------------

    def _attached(self) -> Job | None:
        """The job, where its engines are to have the weights."""
        if self._publish is False:
            return None
        job = attach()
        if not job.attached:
            if self._publish:
                raise Refused(
                    "robustrl: publish = true, and ROBUST_SOCKET is not set in verl's worker: start verl's driver by "
                    "robustd, and have it start Ray itself (ray.init without an address), so that Ray's workers have its environment"
                )
            return None
        if job.level != "weights" or job.world_size != 1:
            raise Refused(
                f"robustrl: verl's driver is one program that publishes: the job file must have trainer.ranks = 1 and "
                f'trainer.command.level = "weights"; it has {job.world_size} and "{job.level}"'
            )
        return job
