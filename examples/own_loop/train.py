"""GRPO with a loop of its own: it makes up its prompts, asks the job's engines, and rewards what they say.

No batch is the job's; what makes the program survive is restore, commit and publish. The task is a toy: say
the token 7 as often as you can.
"""

import os
import random

import torch
import torch.distributed as dist
from transformers import AutoModelForCausalLM

import robustrl

PROMPTS, RESPONSES, TOKENS, WANTED = 4, 8, 12, 7
STEPS = int(os.environ.get("STEPS", "30"))


def logprobs(model, ids):
    """Of every token after the first: float32 [n, t - 1]."""
    logits = model(ids[:, :-1]).logits.float()
    return logits.log_softmax(-1).gather(-1, ids[:, 1:, None])[..., 0]


def rollouts(job, step):
    """This rank's own prompts and what the engines make of them: ids [n, t], rewards [groups, n / groups]."""
    dice = random.Random(f"{step} {job.rank}")
    prompts = [[dice.randrange(8, 64) for _ in range(4)] for _ in range(PROMPTS)]
    asked = [prompt for prompt in prompts for _ in range(RESPONSES)]
    said = job.generate(asked, max_new_tokens=TOKENS, temperature=1.0, ignore_eos=True)
    rewards = torch.tensor([answer.ids.count(WANTED) / TOKENS for answer in said])
    return torch.tensor([prompt + answer.ids for prompt, answer in zip(asked, said)]), rewards.view(PROMPTS, RESPONSES)


def main():
    job = robustrl.attach()
    dist.init_process_group("gloo")
    model = AutoModelForCausalLM.from_pretrained(job.model or os.environ["MODEL"], dtype=torch.float32)
    optim = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.0)
    step = job.restore({"model": model, "optim": optim})
    job.publish(model)
    while step < STEPS and not job.over:
        step += 1
        ids, rewards = rollouts(job, step)
        advantages = ((rewards - rewards.mean(1, keepdim=True)) / (rewards.std(1, keepdim=True) + 1e-4)).view(-1, 1)
        with job.phase("update"):
            loss = -(logprobs(model, ids)[:, -TOKENS:] * advantages).mean()
            optim.zero_grad(set_to_none=True)
            loss.backward()
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad, op=dist.ReduceOp.SUM)
                parameter.grad /= job.world_size
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optim.step()
        job.commit(loss=loss, grad_norm=norm, reward=rewards.mean(), tokens=rewards.numel() * TOKENS)
        job.publish(model)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
