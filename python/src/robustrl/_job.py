"""A rank of the training gang, as its own program sees it."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
import traceback
from dataclasses import dataclass, replace
from typing import Any, Iterator, Mapping, Sequence

import torch

from . import _spare
from ._canary import answer
from ._files import Mapped, described, read_safetensors
from ._generate import Completion, generate
from ._page import PHASES, Page
from ._state import flatten, gathered, pairs, restore, whole
from ._wire import PROTOCOL, JobOver, Refused, Wire

_VERSION = "0.1.0"


@dataclass
class Batch:
    """This rank's share of a step's batch. ``n`` samples, ``t`` tokens of the longest one.

    What is about the next token has ``t - 1`` columns: column ``i`` is about token ``i + 1``.
    """

    step: int
    """The step that it is for; the state after it is of this step."""
    batch_tokens: int
    """Trainable tokens of the whole batch, of all ranks: the divisor of a sum over tokens."""
    ids: torch.Tensor
    """int64 ``[n, t]``: prompt, turns and tool results; 0 after a sample's end."""
    lengths: torch.Tensor
    """int64 ``[n]``: tokens of each sample."""
    mask: torch.Tensor
    """float32 ``[n, t - 1]``: 1 where the model made the next token, else 0."""
    rollout_logprobs: torch.Tensor
    """float32 ``[n, t - 1]``: natural logarithm of the next token's probability where it was made."""
    advantages: torch.Tensor
    """float32 ``[n]``: by group, of the whole batch's rewards."""
    rewards: torch.Tensor
    """float32 ``[n]``."""
    trajectories: torch.Tensor
    """int64 ``[n]``: each sample's key in ``robustctl traj``."""

    def to(self, device: torch.device | str | int) -> Batch:
        """The same batch with all its tensors there, for they come on the CPU."""
        tensors = {name: value.to(device) for name, value in vars(self).items() if isinstance(value, torch.Tensor)}
        return replace(self, **tensors)


class Job:
    """One life of this rank. Made by :func:`attach`; without a daemon every call but generate() is a no-op."""

    rank: int
    """This rank, from 0."""
    world_size: int
    """Ranks of the gang."""
    local_rank: int
    """Number among the ranks of this host; 0 where the rank sees its own devices alone."""
    generation: int
    """Lives of the gang so far, from 1; 0 without a daemon."""
    model: str
    """Folder of the initial weights (Hugging Face layout); empty without a daemon."""
    attached: bool
    """Whether there is a daemon."""
    level: str
    """What the job file says that this program uses: ``phases``, ``weights``, ``state`` or ``data``; below
    ``data`` its loop is its own. ``none`` without a daemon."""
    over: bool
    """Whether the job ended while the program was in ``commit()`` or ``publish()``: a loop of its own may stop."""

    def __init__(self, wire: Wire | None, told: Mapping[str, Any]) -> None:
        self._wire = wire
        self.attached = wire is not None
        self.rank = told["rank"]
        self.world_size = told["world_size"]
        self.local_rank = told["local_rank"]
        self.generation = told["generation"]
        self.incarnation = told["incarnation"]
        self.name = told["job"]
        self.model = told["model"]
        self.level = told["level"]
        self.over = False
        self._keeps_state = told["keeps_state"]
        self._reshards = told["reshards"]
        # Alone it takes any name, for it does not know the job file.
        self._names = (*PHASES, *told["phases"]) if wire is not None else None
        self._between = "update" if self.level == "data" else "loop"
        self._canary = told.get("canary")
        self._page = Page(told["page"]) if wire is not None else None
        self._phases: list[str] = []
        self._step = 0
        self._objects: Mapping[str, Any] = {}
        self._files: dict[str, Mapped] = {}
        self._enter("init" if self.level in ("state", "data") else "loop")

    # ---- phases -------------------------------------------------------------------------------

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """What the program does within: the rules judge by it, and the console shows it. Nests.

        ``old_logprob``, ``ref_logprob`` and ``update`` are computing: a rank that uses no processor in them
        counts as hung. Raises ValueError for a name that neither a rule knows nor the job file (``trainer.command.phases``).
        """
        if self._names is not None and name not in self._names:
            known = ", ".join(self._names)
            raise ValueError(f"robustrl: there is no phase {name!r}; those of a trainer are {known}; trainer.command.phases names more")
        self._phases.append(name)
        self._enter(name)
        try:
            yield
        finally:
            self._phases.pop()
            self.beat()

    def beat(self) -> None:
        """The program gets on, in a loop of its own that says nothing else: the time after which it counts as
        hung (``trainer.command.watch.silent_s``) begins again here."""
        self._enter(self._phases[-1] if self._phases else self._between)

    def _wait(self) -> None:
        """What is next is the daemon's in a loop over its batches, and the program's in one of its own."""
        self._enter("await_batch" if self.level == "data" else "loop")

    def _enter(self, name: str) -> None:
        if self._page is not None:
            self._page.enter(name, self._step)

    # ---- state --------------------------------------------------------------------------------

    def restore(self, objects: Mapping[str, Any]) -> int:
        """Gives the objects the newest kept state, and returns its step: 0 where there is none yet, and the
        objects stay as they are.

        ``objects``: by name, whatever has ``state_dict()`` and ``load_state_dict()``: modules, optimisers,
        schedulers, and objects of your own. From here on :meth:`commit` keeps them. Tensors of FSDP2 are kept
        as this rank's shards, or with ``snapshot = "dcp"`` so that another number of ranks can take them up; then
        ``init_process_group`` comes first. Raises Refused where the state cannot be read.

        Where the program keeps its state itself (``snapshot = "own"``, or a level below ``state``) the objects
        stay as they are, and the step is that of the last commit: take up your own checkpoint.
        """
        self._objects = dict(objects)
        if self._wire is None:
            return 0
        if not self._keeps_state:
            self._step = self._wire.ask("restore")["step"]
            self._enter("loop")
            return self._step
        while True:
            told = self._wire.ask("restore")
            self._step = told["step"]
            self._enter("load_checkpoint")
            error = self._take_up(told["places"])
            try:
                self._wire.ask("restored", step=self._step, error=error)
                break
            except Refused:
                # The daemon may know of another place; asked again, the shim waits for it.
                print(f"robustrl: the state of step {self._step} could not be taken up: {error}", file=sys.stderr)
        self._wait()
        return self._step

    def _take_up(self, places: Sequence[Mapping[str, Any]]) -> str | None:
        if not places:
            return None if self._step == 0 else "there is no kept state of it, but the initial weights"
        try:
            tensors: dict[str, torch.Tensor] = {}
            for place in places:
                file = Mapped(place["path"])
                tensors |= {placed["name"]: file.tensor(place["data"], placed) for placed in place["tensors"]}
            self._give(tensors)
        except Exception as error:  # whatever an object's own load_state_dict raises
            return f"{type(error).__name__}: {error}"
        return None

    def _give(self, tensors: Mapping[str, torch.Tensor]) -> None:
        if self._reshards:
            from . import _dcp

            return _dcp.take_up(self._objects, tensors)
        restore(self._objects, tensors)

    def _parts(self) -> Mapping[str, torch.Tensor]:
        if self._reshards:
            # Not for those who need none of it: its import takes a while.
            from . import _dcp

            return _dcp.parts(self._objects)
        return flatten(self._objects)

    def commit(self, **figures: float | torch.Tensor) -> None:
        """The step is done: keeps the state of the objects that restore() was given, and returns once the step
        is on record. Whatever happens then, training goes on from there.

        ``figures``: numbers by name. ``loss`` and ``grad_norm`` are shown (averaged over the ranks), and so are
        ``clip_fraction``, ``entropy`` and ``kl``. One that is NaN or infinite is a fault of the step: the call
        does not return, and the gang is restarted from the step before. Where the job is over meanwhile it
        returns without having kept the step, and ``batches()`` ends.

        In a loop of its own each commit is a step, and ``reward`` (a mean) and ``tokens`` (of this rank) are
        shown too. Raises Refused at a level that has no steps.
        """
        if self._wire is None:
            return
        with self._until_over():
            self._commit(figures)

    @contextlib.contextmanager
    def _until_over(self) -> Iterator[None]:
        try:
            yield
        except JobOver:
            self.over = True

    def _commit(self, figures: Mapping[str, float | torch.Tensor]) -> None:
        assert self._wire is not None
        if self._keeps_state and not self._objects:
            raise Refused("robustrl: commit() keeps the objects that restore() was given; call job.restore({...}) first")
        if self.level != "data":
            self._step += 1
        tensors = self._parts() if self._keeps_state else {}
        told = self._wire.ask(
            "figures",
            step=self._step,
            figures={name: _text(value) for name, value in figures.items()},
            tensors=[described(name, tensor) for name, tensor in tensors.items()],
        )
        self._enter("snapshot")
        self._write(told["place"], tensors)
        self._wire.ask("written", step=self._step)
        self._wait()

    def _write(self, place: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> None:
        """Copies into memory that stays mapped, so that no copy but the first pays for page faults. What lies on a
        device is copied there as fast as the device can, for the memory is pinned, and all is there on return."""
        path = place["path"]
        end = place["data"] + max((placed["end"] for placed in place["tensors"]), default=0)
        file = self._files.get(path)
        if file is None or len(file) < end:
            if file is not None:
                file.unpin()
            file = self._files[path] = Mapped(path, writable=True)
        pinned = any(tensors[placed["name"]].device.type == "cuda" for placed in place["tensors"]) and file.pin()
        for placed in place["tensors"]:
            if placed["end"] > placed["start"]:
                file.tensor(place["data"], placed).copy_(whole(tensors[placed["name"]]), non_blocking=pinned)
        if pinned:
            torch.cuda.current_stream().synchronize()

    # ---- weights ------------------------------------------------------------------------------

    def publish(self, named: Any, canary: Mapping[str, Any] | None = None) -> None:
        """Publishes the weights of the present step to all engines. Returns when they are copied; hashing and
        sending happen behind.

        ``named``: a module with Hugging Face's names, or pairs of name and tensor. Every rank calls it with the
        same weights, full or as DTensors, which are gathered one at a time; what an iterator yields is copied to the
        host as it comes. They travel as float32, or as bfloat16, to which they are then
        rounded, where the job's engines hold that. To be called after restore(), and after each commit().

        ``canary``: what these weights answer to ``job.canary_prompt``, where the job's engines are verified by
        it: ``ids``, ``logprobs`` (natural logarithm) and ``margins`` (to the second token), each a list. It is
        computed here where ``named`` is a module whose ``module(ids).logits`` are a language model's.

        At level ``weights`` nothing else need be called: each version after the first is a step.
        """
        with self._until_over():
            self._publish(named, canary)

    def _publish(self, named: Any, canary: Mapping[str, Any] | None) -> None:
        if self._wire is None:
            return
        self._enter("publish")
        if canary is None and hasattr(named, "named_parameters"):
            canary = self.canary(named)
        tensors = dict(gathered(named) if hasattr(named, "__next__") else pairs(named))
        layout = [{"name": name, "dtype": "F32", "shape": list(tensor.shape)} for name, tensor in tensors.items()]
        version = None if self.level == "weights" else self._step
        told = self._wire.ask("publish", version=version, tensors=layout)
        if told["answer"] == "write":
            self._step = told["of"]
            self._write(told["place"], tensors)
            self._wire.ask("published", version=self._step, canary=canary)
        self._wait()

    @property
    def canary_prompt(self) -> list[int] | None:
        """Tokens whose greedy continuation publish() is to be given; None where no engine is verified by it."""
        return None if self._canary is None else list(self._canary["prompt_ids"])

    def canary(self, model: Any) -> dict[str, list[float]] | None:
        """What publish() is to be given for the weights of this model, whose ``model(ids).logits`` are float
        ``[1, t, vocabulary]`` for int64 ids ``[1, t]``; None where no engine is verified by it."""
        return None if self._canary is None else answer(model, self._canary)

    # ---- engines ------------------------------------------------------------------------------

    def generate(self, prompts: Sequence[Sequence[int]], timeout: float = 600.0, **sampling: Any) -> list[Completion]:
        """Asks the job's engines for one completion a prompt (token ids), for a loop of its own; in their order.

        ``sampling``: SGLang's names: ``max_new_tokens``, ``temperature``, ``top_p``, ``ignore_eos``, .. Whoever
        fails is replaced by another engine, while there is one; ``timeout`` is in seconds, for all together. What
        is generated is not kept by the daemon: nothing of it outlives the program. Raises Refused where an
        engine finds something wrong with a prompt or there is no router, and TimeoutError.
        """
        return generate(prompts, timeout, sampling)

    # ---- batches ------------------------------------------------------------------------------

    def batches(self) -> Iterator[Batch]:
        """Yields this rank's share of one batch after the other, until the job is over. After a restart the
        batch that was not committed comes again, the same samples. Each must be committed before the next.
        """
        if self._wire is None:
            return
        while True:
            self._enter("await_batch")
            try:
                told = self._wire.ask("batch")
            except JobOver:
                self.over = True
                return
            self._step = told["step"]
            tensors = dict(read_safetensors(told["path"]))
            self._enter("update")
            yield Batch(step=self._step, batch_tokens=told["batch_tokens"], **tensors)


def _text(value: float | torch.Tensor) -> str:
    return repr(float(value.detach() if isinstance(value, torch.Tensor) else value))


def attach() -> Job:
    """Attaches this process to its rank. Call it once, before ``init_process_group``, and before anything else that
    asks which rank this is or for a device.

    Where the job keeps spares (``[restart] spares``) a program is started before that is known, and waits in here: it
    returns when this is a rank of the gang, and what the environment says of its place is there from then on. Until
    then it says ``unknown until robustrl.attach()``.

    Where ``robustd`` did not start it the job is one of a single process (or what ``torchrun`` says), and every
    call of it a no-op. Raises Refused where the package and robust-shim are of different versions, or where a spare
    used a device before.
    """
    _spare.wait()
    path = os.environ.get("ROBUST_SOCKET")
    if not path:
        alone = {"generation": 0, "incarnation": 0, "job": "", "model": "", "page": "", "level": "none"}
        ranks = {"rank": ("RANK", 0), "world_size": ("WORLD_SIZE", 1), "local_rank": ("LOCAL_RANK", 0)}
        numbers = {name: int(os.environ.get(variable, other)) for name, (variable, other) in ranks.items()}
        return Job(None, {**alone, **numbers, "keeps_state": False, "reshards": False, "phases": []})
    _tell_exceptions()
    wire = Wire(path)
    return Job(wire, wire.ask("attach", protocol=PROTOCOL, pid=os.getpid(), package=_VERSION))


def _tell_exceptions() -> None:
    """An exception that nobody handles is written where robust-shim looks for it, as torchelastic's ``record``
    does (``torch/distributed/elastic/multiprocessing/errors``)."""
    path = os.environ.get("TORCHELASTIC_ERROR_FILE")
    before = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: Any) -> None:
        if path and not os.path.exists(path):
            text = "".join(traceback.format_exception(kind, error, trace))
            message = {"message": f"{kind.__name__}: {error}", "extraInfo": {"py_callstack": text, "timestamp": str(int(time.time()))}}
            with contextlib.suppress(OSError), open(path, "w") as file:
                json.dump({"message": message}, file)
        before(kind, error, trace)

    sys.excepthook = hook
