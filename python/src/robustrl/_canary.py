"""What weights answer to a fixed prompt: engines must answer the same before they get traffic."""

from __future__ import annotations

from typing import Any, Mapping

import torch


def answer(model: Any, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Greedy tokens after ``asked["prompt_ids"]``, by the model's own forward, one whole pass a token.

    ``model(ids).logits``: ``[1, t, vocabulary]`` for ``ids`` int64 ``[1, t]``. The model is left in the mode
    (training or not) in which it was.
    """
    device = next(model.parameters()).device
    ids = list(asked["prompt_ids"])
    made: list[int] = []
    logprobs: list[float] = []
    margins: list[float] = []
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            for _ in range(asked["tokens"]):
                logits = model(torch.tensor([ids + made], device=device)).logits[0, -1]
                first, second = logits.float().log_softmax(-1).topk(2).values.tolist()
                made.append(int(logits.argmax()))
                logprobs.append(first)
                margins.append(first - second)
    finally:
        model.train(training)
    return {"ids": made, "logprobs": logprobs, "margins": margins}
