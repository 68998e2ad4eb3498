"""TRL's asynchronous GRPO trainer under ``robustd``, unmodified: two arguments make it a trainer that survives.

::

    trainer = AsyncGRPOTrainer(
        ...,
        weight_transfer=robustrl.trl.WeightTransfer(),
        callbacks=[robustrl.trl.Callback()],
    )
    trainer.train(resume_from_checkpoint=robustrl.trl.last_checkpoint(args.output_dir))

The job file says ``level = "weights"``: weights go out by ``job.publish``, each version after the first is a step
of the job, TRL's own checkpoints are where a restart goes on. Completions come from the job's engines (vLLM, or
what answers ``/v1/completions`` as it does) through robustd's router. Started by hand the callback does nothing,
and the weight transfer refuses: there is nobody to take the weights.

Written against TRL 1.16.0, whose ``trl.experimental`` may change with each release.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
from dataclasses import fields
from typing import Any, Iterator

import torch
from transformers import TrainerCallback
from trl.experimental.async_grpo import AsyncGRPOConfig
from trl.experimental.async_grpo.async_rollout_worker import AsyncRolloutWorker, _AsyncRolloutLoop

from ._job import Job, attach
from ._wire import Refused

__all__ = ["Callback", "WeightTransfer", "last_checkpoint"]

_FIGURES = {"loss": "loss", "grad_norm": "grad_norm", "reward": "reward", "entropy": "entropy"}
_TOKENS = "batch/trained_tokens_per_step"


class _Link:
    """What the two classes share: the job that this process attached to, and the model that it trains."""

    job: Job | None = None
    model: torch.nn.Module | None = None
    processes = 1

    @classmethod
    def attached(cls) -> Job:
        """The job, attached to at the first call. Raises Refused for a gang of several ranks."""
        if cls.job is None:
            job = attach()
            if job.world_size > 1 and job.attached:
                raise Refused(
                    f"robustrl: trainer.ranks is {job.world_size}, and TRL sends weights from its main process alone, "
                    "where robustd wants them of every rank; write `ranks = 1` and let the rank's own program start "
                    "TRL's processes, by torchrun or accelerate launch"
                )
            cls.job = job
        return cls.job


class WeightTransfer:
    """Publishes what TRL sends: an implementation of its ``WeightTransferProtocol``.

    The engines are robustd's: it pauses them, has them load a version, verifies it and resumes them, each when its
    turn comes. So nothing is paused here, and the trainer goes on as soon as the weights are copied.
    """

    def init_weight_transfer(self) -> None:
        """Attaches, if the callback has not. Raises Refused without a daemon, and below level ``weights``."""
        job = _Link.attached()
        if not job.attached:
            raise Refused(
                "robustrl: the weights have nowhere to go, for robustd did not start this program; leave weight_transfer "
                "out to train without it"
            )
        if job.level != "weights":
            raise Refused(
                f"robustrl: the job file says that this trainer is of level {job.level!r}; under TRL's loop it is of "
                'trainer.command.level "weights", as its state is kept in checkpoints of its own'
            )

    def pause(self) -> None:
        """Nothing: an engine is paused by robustd, when it takes the version up."""

    def send_weights(self, iterator: Iterator[tuple[str, torch.Tensor]]) -> None:
        """Publishes the next version. Returns when it is copied; engines take it up behind.

        ``iterator``: pairs of a name, as Hugging Face has it, and the full tensor, of any floating dtype and
        device. They are taken one at a time into host memory. Raises FloatingPointError before anything is
        published if one has an element that is NaN or infinite: the gang then goes on from its last checkpoint.
        """
        job = _Link.attached()
        tensors = {name: _finite(name, tensor).cpu() for name, tensor in iterator}
        job.publish(tensors, canary=_canary(job))

    def resume(self) -> None:
        """Nothing but a sign of life: an engine is resumed by robustd, when it has verified the version."""
        _Link.attached().beat()

    def destroy(self) -> None:
        """Nothing: the link to robustd ends with the process."""


class Callback(TrainerCallback):
    """Gives TRL the job's engines, and robustd TRL's phases and figures.

    When the trainer is made: ``vllm_server_base_url`` becomes the router's address where it is TRL's default (another
    one is left alone), and TRL's rollout workers show the router's key from then on. Raises Refused without a
    ``token_budget``, which TRL would ask an engine for before the first weights are published.

    While it trains: ``update`` is the phase from the first micro-batch to the optimiser's step, ``await_batch`` what
    is between; where versions are steps, the figures of TRL's last log (``loss``, ``grad_norm``, ``reward``,
    ``entropy``, tokens) are told with the next one, so they are a step old with ``logging_steps=1``. A figure that
    is not finite is left out. When the job is over, training stops at the next step.
    """

    def __init__(self) -> None:
        self._phase = contextlib.ExitStack()
        self._figures: dict[str, float] = {}
        self._main = False

    def on_init_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Before TRL makes its clients of the engines, which take the address from ``args``."""
        self._main = args.process_index == 0
        _Link.processes = args.world_size
        if not self._main or not _Link.attached().attached:
            return
        address = os.environ.get("ROBUST_ROUTER")
        if not address or args.vllm_server_base_url != _default_address():
            return
        if args.token_budget is None:
            raise Refused(
                "robustrl: give AsyncGRPOConfig a token_budget (the engines' longest prompt and completion together): "
                "TRL would ask an engine for it before the first weights are published, and until then none serves"
            )
        args.vllm_server_base_url = address
        if AsyncRolloutWorker._loop_cls is _AsyncRolloutLoop:
            AsyncRolloutWorker._loop_cls = _KeyedLoop

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """TRL sends the first weights after this, and starts its rollouts."""
        _Link.model = kwargs.get("model")
        self._enter("await_batch")

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The step's samples are there."""
        self._enter("update")

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The optimiser took its step. TRL sends the weights after this, where it does."""
        if not self._main:
            return
        self._enter("await_batch")
        job = _Link.attached()
        if job.level == "weights" and state.global_step % args.weight_sync_steps == 0:
            job.commit(**self._figures)
        if job.over:
            control.should_training_stop = True

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any) -> None:
        """Keeps the figures for the next version."""
        told = {ours: (logs or {}).get(theirs) for ours, theirs in {**_FIGURES, "tokens": _TOKENS}.items()}
        finite = {name: float(value) for name, value in told.items() if value is not None and math.isfinite(value)}
        self._figures |= finite

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Saving may take long, and the time after which it counts as hung begins again."""
        if self._main:
            _Link.attached().beat()

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """What comes now, such as saving the model, is the program's."""
        self._phase.close()

    def _enter(self, name: str) -> None:
        if self._main:
            self._phase.close()
            self._phase.enter_context(_Link.attached().phase(name))


class _KeyedLoop(_AsyncRolloutLoop):
    """TRL's rollouts, whose requests show the router's key. They run in a process of their own."""

    async def _generate_loop(self, stop_event: asyncio.Event) -> None:
        with open(os.environ["ROBUST_ROUTER_KEY_FILE"]) as file:
            self.session.headers["Authorization"] = f"Bearer {file.read().strip()}"
        await super()._generate_loop(stop_event=stop_event)


def last_checkpoint(folder: str) -> str | None:
    """The newest checkpoint of TRL's (``FOLDER/checkpoint-STEP``) that was written to its end; None where there is
    none: for ``trainer.train(resume_from_checkpoint=...)``.

    A trainer that is killed while it saves leaves a folder that cannot be loaded, and ``get_last_checkpoint`` of
    transformers names that one. ``trainer_state.json`` is written last, so where it is whole the rest is.
    """
    whole: list[int] = []
    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir(folder):
            begin, _, step = name.rpartition("-")
            if begin == "checkpoint" and step.isdigit() and _is_whole(os.path.join(folder, name)):
                whole.append(int(step))
    return os.path.join(folder, f"checkpoint-{max(whole)}") if whole else None


def _is_whole(checkpoint: str) -> bool:
    try:
        with open(os.path.join(checkpoint, "trainer_state.json")) as file:
            return "global_step" in json.load(file)
    except (OSError, ValueError):
        return False


def _finite(name: str, tensor: torch.Tensor) -> torch.Tensor:
    if not bool(torch.isfinite(tensor).all()):
        raise FloatingPointError(f"robustrl: `{name}` has elements that are NaN or infinite, and is not published")
    return tensor


def _canary(job: Job) -> dict[str, list[float]] | None:
    """What the weights answer, where engines are verified by it: by the model's plain attention, for TRL's own
    takes packed rows alone."""
    if job.canary_prompt is None:
        return None
    model = _Link.model
    if model is None or _Link.processes > 1:
        raise Refused(
            "robustrl: the job's engines are verified by a canary, which is computed where one process has the whole "
            'model; add robustrl.trl.Callback() to callbacks, or with several processes write `verify = ["version", '
            '"checksum"]` in [rollout.command]'
        )
    theirs = model.config._attn_implementation
    model.set_attn_implementation("sdpa")
    try:
        return job.canary(model)
    finally:
        model.set_attn_implementation(theirs)


def _default_address() -> str:
    (field,) = (field for field in fields(AsyncGRPOConfig) if field.name == "vllm_server_base_url")
    return str(field.default)
