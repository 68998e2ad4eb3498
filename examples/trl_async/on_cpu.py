"""What TRL's asynchronous GRPO trainer asks of a GPU, replaced so that it runs on a processor: three functions.

Nothing of it is needed where there is a GPU, and nothing of it has to do with RobustRL.
"""

from types import SimpleNamespace

import torch
import trl.experimental.async_grpo.async_grpo_trainer as trainer
import trl.experimental.async_grpo.async_rollout_worker as rollouts
import trl.experimental.async_grpo.packing as packing


def attention(q, k, v, begins_q, begins_k, _longest_q, _longest_k, softmax_scale=None, causal=True, window_size=None):
    """Causal attention of packed rows: q float ``[n, heads, d]``, k and v ``[m, kv_heads, d]``, to ``[n, heads, d]``."""
    rows = []
    for at in range(len(begins_q) - 1):
        row = q[begins_q[at] : begins_q[at + 1]]
        keys, values = (x[begins_k[at] : begins_k[at + 1]].repeat_interleave(q.shape[1] // k.shape[1], 1) for x in (k, v))
        seen = torch.ones(len(row), len(keys), dtype=torch.bool).tril(len(keys) - len(row))
        scores = torch.einsum("qhd,khd->hqk", row, keys) * softmax_scale
        rows.append(torch.einsum("hqk,khd->qhd", scores.masked_fill(~seen, float("-inf")).softmax(-1), values))
    return torch.cat(rows)


def replace():
    """To be called before the trainer is made."""
    torch.set_num_threads(1)
    # A kernel for GPUs, fetched from a hub.
    packing._flash_attn = lambda: SimpleNamespace(flash_attn_varlen_func=attention)
    # It asks for the name of a CUDA device, to say how much of it was used.
    trainer.get_peak_flops_per_device = lambda *_: None
    # The trainer wants vLLM installed beside it, and imports nothing of it.
    rollouts.is_vllm_available = lambda *_: True
