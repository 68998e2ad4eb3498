"""A model of Qwen3's architecture, small and with random weights, and its tokenizer: make_model.py FOLDER.

The tokenizer is the one of the arithmetic data, a token a character, with a chat template that is the message itself.
"""

import json
import sys
from pathlib import Path

import torch
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

ARITH = Path(__file__).parents[2] / "fixtures/tokenizers/arith/tokenizer.json"

torch.manual_seed(1)
text = json.loads(ARITH.read_text())
text["model"]["unk_token"] = "<pad>"  # vLLM tokenizes a text of its own when it starts, and ends if a letter of it is nothing
backend = Tokenizer.from_str(json.dumps(text))
tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="<pad>", bos_token="<bos>", eos_token="<eos>")
tokenizer.chat_template = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
tokenizer.save_pretrained(sys.argv[1])
shape = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "vocab_size": len(tokenizer)}
heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32}
tokens = {"pad_token_id": tokenizer.pad_token_id, "bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id}
config = Qwen3Config(max_position_embeddings=64, tie_word_embeddings=True, rope_theta=10000.0, **shape, **heads, **tokens)
Qwen3ForCausalLM(config).save_pretrained(sys.argv[1])
