"""TRL's asynchronous GRPO trainer under robustd: train.py OUTPUT_DIR [--steps N] [--save-steps N].

The trainer is TRL's own, and so are its loop, its batches and its checkpoints. What makes it survive is in three
lines: weight_transfer, callbacks, and the checkpoint that a restart goes on from. The task is a toy: sums, rewarded
for digits.
"""

import argparse
import json
import os
from pathlib import Path

import torch
from datasets import Dataset
from transformers import AutoTokenizer
from trl.experimental.async_grpo import AsyncGRPOConfig, AsyncGRPOTrainer

import robustrl.trl

DATA = Path(__file__).parents[2] / "fixtures/datasets/arith.jsonl"
LONGEST = 64


def digits(completions, **_):
    """Share of the places that hold a digit. Called in a process of its own, so it is a function of the module."""
    said = [completion[-1]["content"] for completion in completions]
    return [sum(letter.isdigit() for letter in text) / 12 for text in said]


def prompts() -> Dataset:
    rows = [json.loads(line) for line in DATA.read_text().splitlines()[:256]]
    return Dataset.from_list([{"prompt": [{"role": "user", "content": row["prompt"]}]} for row in rows])


def main():
    asked = argparse.ArgumentParser()
    asked.add_argument("output_dir")
    asked.add_argument("--model", required=True)
    asked.add_argument("--steps", type=int, default=60)
    asked.add_argument("--save-steps", type=int, default=5)
    asked = asked.parse_args()
    processor = {}
    if not torch.cuda.is_available():
        import on_cpu

        on_cpu.replace()
        processor = {"use_cpu": True, "bf16": False, "dtype": "float32", "gradient_checkpointing": False}
    args = AsyncGRPOConfig(
        output_dir=asked.output_dir,
        max_steps=asked.steps,
        save_steps=asked.save_steps,
        save_total_limit=2,
        logging_steps=1,
        report_to="none",
        learning_rate=3e-4,
        per_device_train_batch_size=16,
        num_generations=8,
        max_completion_length=12,
        max_inflight_tasks=32,
        max_staleness=2,
        token_budget=16 * LONGEST,
        **processor,
    )
    tokenizer = AutoTokenizer.from_pretrained(asked.model)
    text = {"close_pattern": r"(?:<eos>)\s*|$", "content": "text"}
    tokenizer.response_template = {"defaults": {"role": "assistant"}, "start_anchor": "=", "fields": {"content": text}}
    trainer = AsyncGRPOTrainer(
        model=asked.model,
        args=args,
        train_dataset=prompts(),
        reward_funcs=digits,
        processing_class=tokenizer,
        weight_transfer=robustrl.trl.WeightTransfer(),
        callbacks=[robustrl.trl.Callback()],
    )
    begin = robustrl.trl.last_checkpoint(args.output_dir)
    print(f"life {os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')} begins with {begin or 'the initial weights'}", flush=True)
    trainer.train(resume_from_checkpoint=begin)
    print(f"trained {trainer.state.global_step} steps", flush=True)


if __name__ == "__main__":
    main()
