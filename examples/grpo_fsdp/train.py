"""GRPO with FSDP2: weights, gradients and optimiser lie in shards, one with each rank, under robustd.

What is kept of a rank is its own shards, so a restart reads no more than that; weights are published whole,
gathered one tensor at a time. As examples/grpo_torch but for `fully_shard` and the gradient's mean.
"""

import os

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from transformers import AutoModelForCausalLM

import robustrl

CLIP_LOW, CLIP_HIGH, MAX_NORM = 0.2, 0.28, 1.0
LEARNING_RATE = float(os.environ.get("LEARNING_RATE", "3e-5"))


def logprobs(model, batch):
    """Of every token after the first: float32 [n, t - 1]."""
    attended = torch.arange(batch.ids.shape[1], device=batch.ids.device)[None, :] < batch.lengths[:, None]
    logits = model(batch.ids, attention_mask=attended.long()).logits[:, :-1].float()
    return logits.log_softmax(-1).gather(-1, batch.ids[:, 1:, None])[..., 0]


def main():
    job = robustrl.attach()
    on_cuda = torch.cuda.is_available()
    device = torch.device("cuda", job.local_rank) if on_cuda else torch.device("cpu")
    if on_cuda:
        torch.cuda.set_device(device)
    dist.init_process_group("cpu:gloo,cuda:nccl" if on_cuda else "gloo")
    mesh = dist.device_mesh.init_device_mesh(device.type, (job.world_size,))
    model = AutoModelForCausalLM.from_pretrained(job.model or os.environ["MODEL"], dtype=torch.float32).to(device)
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optim = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0.0)
    job.restore({"model": model, "optim": optim})
    job.publish(model)
    for batch in job.batches():
        batch = batch.to(device)
        with job.phase("old_logprob"), torch.no_grad():
            old = logprobs(model, batch)
        with job.phase("update"):
            ratio = (logprobs(model, batch) - old).exp()
            advantages = batch.advantages[:, None]
            clipped = ratio.clamp(1 - CLIP_LOW, 1 + CLIP_HIGH)
            gain = torch.minimum(ratio * advantages, clipped * advantages)
            # FSDP takes the mean of the ranks' gradients, and the divisor is the whole batch's.
            loss = -(gain * batch.mask).sum() / batch.batch_tokens * job.world_size
            optim.zero_grad(set_to_none=True)
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)
            optim.step()
        job.commit(loss=loss, grad_norm=norm.full_tensor())
        job.publish(model)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
