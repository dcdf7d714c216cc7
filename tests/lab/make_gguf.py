"""Writes the tiny Llama of make_tiny_model.py in llama.cpp's format: `make_gguf.py MODEL_DIR OUT.gguf`.

Runs in the environment of make_llamacpp.py, which has gguf and numpy but no torch: the weights are read by hand.
"""

# mypy: ignore-errors

import json
import sys
from pathlib import Path

import gguf
import numpy as np

source, target = Path(sys.argv[1]), sys.argv[2]
config = json.loads((source / "config.json").read_text())
tokenizer = json.loads((source / "tokenizer.json").read_text())
heads, width = config["num_attention_heads"], config["hidden_size"]


def weights(path: Path) -> dict[str, np.ndarray]:
    """Every tensor of a safetensors file of bfloat16, as float32: the upper half of the same bits."""
    raw = path.read_bytes()
    start = 8 + int.from_bytes(raw[:8], "little")
    found = {}
    for name, about in json.loads(raw[8:start]).items():
        if name == "__metadata__":
            continue
        assert about["dtype"] == "BF16", about
        begin, end = about["data_offsets"]
        halves = np.frombuffer(raw[start + begin : start + end], dtype=np.uint16)
        found[name] = (halves.astype(np.uint32) << 16).view(np.float32).reshape(about["shape"])
    return found


def rotary(matrix: np.ndarray, count: int) -> np.ndarray:
    """Rows of each head in llama.cpp's order: it rotates neighbouring rows, transformers rows that are half a head apart."""
    rows = matrix.shape[0]
    return matrix.reshape(count, 2, rows // count // 2, -1).swapaxes(1, 2).reshape(matrix.shape)


out = gguf.GGUFWriter(target, "llama")
out.add_name("tiny")
out.add_context_length(config["max_position_embeddings"])
out.add_embedding_length(width)
out.add_block_count(config["num_hidden_layers"])
out.add_feed_forward_length(config["intermediate_size"])
out.add_head_count(heads)
out.add_head_count_kv(config["num_key_value_heads"])
out.add_layer_norm_rms_eps(config["rms_norm_eps"])
out.add_rope_dimension_count(width // heads)
out.add_vocab_size(config["vocab_size"])
out.add_file_type(gguf.LlamaFileType.MOSTLY_F16)

vocabulary = tokenizer["model"]["vocab"]
tokens = sorted(vocabulary, key=vocabulary.get)
control = {token["content"] for token in tokenizer["added_tokens"]}
out.add_tokenizer_model("gpt2")
out.add_tokenizer_pre("default")
out.add_token_list(tokens)
out.add_token_types([gguf.TokenType.CONTROL if token in control else gguf.TokenType.NORMAL for token in tokens])
out.add_token_merges([" ".join(pair) if isinstance(pair, list) else pair for pair in tokenizer["model"]["merges"]])
out.add_bos_token_id(config["bos_token_id"])
out.add_eos_token_id(config["eos_token_id"])
out.add_chat_template((source / "chat_template.jinja").read_text())

of_model = weights(source / "model.safetensors")
embeddings = of_model["model.embed_tokens.weight"]
out.add_tensor("token_embd.weight", embeddings.astype(np.float16))
out.add_tensor("output_norm.weight", of_model["model.norm.weight"])
out.add_tensor("output.weight", of_model.get("lm_head.weight", embeddings).astype(np.float16))
for index in range(config["num_hidden_layers"]):
    theirs, ours = f"model.layers.{index}.", f"blk.{index}."
    out.add_tensor(f"{ours}attn_norm.weight", of_model[f"{theirs}input_layernorm.weight"])
    out.add_tensor(f"{ours}ffn_norm.weight", of_model[f"{theirs}post_attention_layernorm.weight"])
    for name, part, rotated in (
        ("attn_q", "self_attn.q_proj", heads),
        ("attn_k", "self_attn.k_proj", config["num_key_value_heads"]),
        ("attn_v", "self_attn.v_proj", None),
        ("attn_output", "self_attn.o_proj", None),
        ("ffn_gate", "mlp.gate_proj", None),
        ("ffn_up", "mlp.up_proj", None),
        ("ffn_down", "mlp.down_proj", None),
    ):
        matrix = of_model[f"{theirs}{part}.weight"]
        out.add_tensor(f"{ours}{name}.weight", (rotary(matrix, rotated) if rotated else matrix).astype(np.float16))
out.write_header_to_file()
out.write_kv_data_to_file()
out.write_tensors_to_file()
out.close()
