"""RobustRL for programs of your own.

A trainer attaches, takes up its state, and goes round::

    import robustrl

    job = robustrl.attach()
    step = job.restore({"model": model, "optim": optim})
    job.publish(model)
    for batch in job.batches():
        with job.phase("update"):
            ...
        job.commit(loss=loss, grad_norm=norm)
        job.publish(model)

Started by ``robustd`` (``[trainer.command]`` of the job file) each rank runs beside a ``robust-shim``, which
keeps its state in shared memory, serves its weights to the engines, and tells the daemon what it does. Started
by hand everything is a no-op but ``generate()``, which needs engines, and ``batches()`` yields nothing.

One with a loop of its own (``trainer.command.level`` below ``data``) takes of that what it likes: ``phase`` alone,
``publish``, ``restore`` and ``commit``; and asks the job's engines with ``generate``.

Environments and rewards (``[agent.command]``) are a program of their own::

    @robustrl.reward
    def reward(prompt, text):
        return float(prompt.answer in text)

    robustrl.serve()

Receivers of weights inside inference engines are ``robustrl.vllm`` and ``robustrl.sglang``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._environment import Engine, Prompt, Unable, environment, reward, serve
    from ._generate import Completion
    from ._job import Batch, Job, attach
    from ._wire import JobOver, Refused

_WHERE = {
    "_environment": ("Engine", "Prompt", "Unable", "environment", "reward", "serve"),
    "_generate": ("Completion",),
    "_job": ("Batch", "Job", "attach"),
    "_wire": ("JobOver", "Refused"),
}
_MODULES = {name: module for module, names in _WHERE.items() for name in names}

__all__ = [
    "Batch",
    "Completion",
    "Engine",
    "Job",
    "JobOver",
    "Prompt",
    "Refused",
    "Unable",
    "attach",
    "environment",
    "reward",
    "serve",
]


def __getattr__(name: str) -> Any:
    # An engine's process imports this package for its receiver alone, and is spared the rest.
    if name not in _MODULES:
        raise AttributeError(f"module 'robustrl' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"robustrl.{_MODULES[name]}"), name)
