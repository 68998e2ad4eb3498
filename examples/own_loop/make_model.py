"""A model of Qwen3's architecture, small and with random weights: make_model.py FOLDER."""

import sys

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

torch.manual_seed(1)
shape = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32}
config = Qwen3Config(vocab_size=64, max_position_embeddings=64, tie_word_embeddings=True, rope_theta=10000.0, **shape, **heads)
Qwen3ForCausalLM(config).save_pretrained(sys.argv[1])
