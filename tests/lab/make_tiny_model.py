"""Writes a tiny Llama with random weights, and a tokenizer trained on the standard library: `make_tiny_model.py DIR`.

Under greedy decoding random weights fall into loops, and loops are what n-gram speculation lives on. Runs in the lab's
environment, which has torch and transformers.
"""

# mypy: ignore-errors

import sys
import sysconfig
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

target = sys.argv[1]
texts = [str(path) for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))[:200]]

bpe = Tokenizer(models.BPE())
bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
bpe.decoder = decoders.ByteLevel()
trainer = trainers.BpeTrainer(
    vocab_size=4096,
    special_tokens=["<s>", "</s>", "<|user|>", "<|assistant|>"],
    initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
)
bpe.train(texts, trainer)
tokenizer = PreTrainedTokenizerFast(tokenizer_object=bpe, bos_token="<s>", eos_token="</s>")  # noqa: S106 - tokens of text
tokenizer.chat_template = "{% for m in messages %}<|user|>{{ m['content'] }}{% endfor %}<|assistant|>"
tokenizer.save_pretrained(target)

torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=len(tokenizer),
    hidden_size=256,
    intermediate_size=512,
    num_hidden_layers=4,
    num_attention_heads=4,
    num_key_value_heads=4,
    max_position_embeddings=4096,
    bos_token_id=0,
    eos_token_id=1,
)
LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(target)
