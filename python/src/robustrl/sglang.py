"""SGLang's custom weight loader ``robustrl.sglang.load``: loads a version from its folder in shared memory.

Started with ``--custom-weight-loader robustrl.sglang.load``, and in the job file
``rollout.command.weights = "plugin"``. ``robust-shim`` has verified every byte of the folder before it
names it here: in ``update_weights_from_tensor``, whose only tensor is empty and has the folder's path as its
name.

An exception in a loader ends SGLang's scheduler, and with it everybody's requests. So nothing is raised: what
was not loaded is written to the log, and the shim finds it when it verifies what the engine serves.

Held against SGLang 0.5.23.
"""

from __future__ import annotations

import logging

from safetensors import safe_open

from ._folder import weights_file

logger = logging.getLogger(__name__)


def load(model, named_tensors) -> None:
    """Replaces the model's weights by those of the folder that is named. Never raises."""
    try:
        ((folder, _),) = named_tensors
        with safe_open(weights_file(folder), framework="pt") as tensors:
            model.load_weights((name, tensors.get_tensor(name)) for name in tensors.keys())
    except Exception:
        logger.exception("robustrl: the weights were not loaded, or not all of them")
