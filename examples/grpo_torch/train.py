"""GRPO in plain PyTorch: data-parallel ranks of a Hugging Face model, under robustd or torchrun.

Each rank takes its share of the batch, the gradients are summed, and every rank takes the same step. What
makes it survive is four lines: restore, batches, commit, publish.
"""

import os

import torch
import torch.distributed as dist
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
    model = AutoModelForCausalLM.from_pretrained(job.model or os.environ["MODEL"], dtype=torch.float32).to(device)
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
            loss = -(gain * batch.mask).sum() / batch.batch_tokens
            optim.zero_grad(set_to_none=True)
            loss.backward()
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)
            optim.step()
        job.commit(loss=loss * job.world_size, grad_norm=norm)
        job.publish(model)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
