"""The backend itself; imported by vLLM's workers only, since it needs vLLM."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterator

import torch
from safetensors import safe_open
from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
from vllm.model_executor.model_loader.reload import (
    finalize_layerwise_reload,
    initialize_layerwise_reload,
)

from ._folder import weights_file


@dataclass
class Init(WeightTransferInitInfo):
    """Nothing has to be agreed on before the first version."""


@dataclass
class Update(WeightTransferUpdateInfo):
    """A version: its number, and the folder that has it as ``model.safetensors``."""

    version: int
    folder: str


class RobustEngine(WeightTransferEngine[Init, Update]):
    """Loads layer by layer from a mapped file: no second copy of the weights on the host."""

    init_info_cls, update_info_cls = Init, Update

    def init_transfer_engine(self, init_info: Init) -> None:
        """Nobody has to be met: weights lie in shared memory."""

    def shutdown(self) -> None:
        """Nothing is held."""

    def start_weight_update(self) -> None:
        """The update itself begins when its file is known to be there."""

    def update_weights(self, update_info: dict) -> None:
        """Loads a version. The base class's method synchronises an accelerator, which may not be there."""
        self.receive_weights(self.parse_update_info(update_info))

    def receive_weights(self, update_info: Update) -> None:
        """Replaces the model's weights; whatever can fail by the file fails before the model is touched."""
        file = weights_file(update_info.folder)
        with safe_open(file, framework="pt") as tensors:
            names = list(tensors.keys())

            def all_of_them() -> Iterator[tuple[str, torch.Tensor]]:
                for name in names:
                    yield name, tensors.get_tensor(name)

            initialize_layerwise_reload(self.model)
            self.model.load_weights(all_of_them())

    def finish_weight_update(self) -> None:
        """Ends the update, and packs a tied output head anew: on a CPU vLLM keeps a copy of it."""
        finalize_layerwise_reload(self.model, self.model_config)
        head = getattr(self.model, "lm_head", None)
        if head is not None and hasattr(head, "cpu_linear"):
            from vllm.model_executor.layers.utils import dispatch_cpu_unquantized_gemm

            dispatch_cpu_unquantized_gemm(head, remove_weight=False)
