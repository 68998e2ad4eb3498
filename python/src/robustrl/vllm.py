"""vLLM's weight-transfer backend ``robustrl``: loads a version from its folder in shared memory.

Started with ``--weight-transfer-config '{"backend": "robustrl"}'``, and in the job file
``rollout.command.weights = "plugin"``. ``robust-shim`` has verified every byte of the folder before it
names it here. What ``reload_weights`` leaves out on a CPU, the packed copy of a tied output head, is
made anew.

Held against vLLM 0.32.0.
"""

from __future__ import annotations

BACKEND = "robustrl"
_ENGINE = "robustrl._vllm_engine"


def register() -> None:
    """Makes the backend known to vLLM; called in each of its processes, possibly more than once."""
    from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory

    if BACKEND not in WeightTransferEngineFactory._registry:
        WeightTransferEngineFactory.register_engine(BACKEND, _ENGINE, "RobustEngine")

