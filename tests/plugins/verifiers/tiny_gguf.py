"""Tiny GGUF files with random weights, for what the small real model cannot show."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np

EMBD, INNER, STATE, RANK, CONV = 32, 64, 8, 4, 4


def write_mamba(path: Path, layers: int = 2) -> Path:
    """A recurrent model over bytes: its memory keeps a state, not cells, and cannot cut its tail."""
    random = np.random.default_rng(3)
    writer = gguf.GGUFWriter(path, "mamba")
    writer.add_context_length(512)
    writer.add_embedding_length(EMBD)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(0)
    writer.add_head_count(0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_ssm_conv_kernel(CONV)
    writer.add_ssm_inner_size(INNER)
    writer.add_ssm_state_size(STATE)
    writer.add_ssm_time_step_rank(RANK)
    n_vocab = add_byte_vocabulary(writer)

    def tensor(name: str, *shape: int) -> None:
        writer.add_tensor(name, random.normal(0, 0.3, shape).astype(np.float32))

    tensor("token_embd.weight", n_vocab, EMBD)
    tensor("output_norm.weight", EMBD)
    for i in range(layers):
        tensor(f"blk.{i}.attn_norm.weight", EMBD)
        tensor(f"blk.{i}.ssm_in.weight", 2 * INNER, EMBD)
        tensor(f"blk.{i}.ssm_conv1d.weight", INNER, CONV)
        tensor(f"blk.{i}.ssm_conv1d.bias", INNER)
        tensor(f"blk.{i}.ssm_x.weight", RANK + 2 * STATE, INNER)
        tensor(f"blk.{i}.ssm_dt.weight", INNER, RANK)
        tensor(f"blk.{i}.ssm_dt.bias", INNER)
        writer.add_tensor(f"blk.{i}.ssm_a", -np.abs(random.normal(1, 0.1, (INNER, STATE))).astype(np.float32))
        tensor(f"blk.{i}.ssm_d", INNER)
        tensor(f"blk.{i}.ssm_out.weight", EMBD, INNER)
    _finish(writer)
    return path


def write_sliding_window(path: Path, window: int = 8, layers: int = 7) -> Path:
    """A gemma-style model: every sixth layer sees all of the context, the others the last `window` tokens."""
    random = np.random.default_rng(5)
    heads, size, hidden = 2, 16, 64
    writer = gguf.GGUFWriter(path, "gemma3")
    writer.add_context_length(512)
    writer.add_embedding_length(EMBD)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(hidden)
    writer.add_head_count(heads)
    writer.add_head_count_kv(1)
    writer.add_key_length(size)
    writer.add_value_length(size)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_sliding_window(window)
    n_vocab = add_byte_vocabulary(writer)

    def tensor(name: str, *shape: int) -> None:
        writer.add_tensor(f"{name}.weight", random.normal(0, 0.3, shape).astype(np.float32))

    tensor("token_embd", n_vocab, EMBD)
    tensor("output_norm", EMBD)
    for i in range(layers):
        for norm, width in (("attn", EMBD), ("attn_q", size), ("attn_k", size), ("ffn", EMBD)):
            tensor(f"blk.{i}.{norm}_norm", width)
        tensor(f"blk.{i}.post_attention_norm", EMBD)
        tensor(f"blk.{i}.post_ffw_norm", EMBD)
        tensor(f"blk.{i}.attn_q", heads * size, EMBD)
        tensor(f"blk.{i}.attn_k", size, EMBD)
        tensor(f"blk.{i}.attn_v", size, EMBD)
        tensor(f"blk.{i}.attn_output", EMBD, heads * size)
        tensor(f"blk.{i}.ffn_gate", hidden, EMBD)
        tensor(f"blk.{i}.ffn_up", hidden, EMBD)
        tensor(f"blk.{i}.ffn_down", EMBD, hidden)
    _finish(writer)
    return path


def add_byte_vocabulary(writer: gguf.GGUFWriter) -> int:
    """Three special tokens and the 256 bytes; how many tokens that is."""
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    kinds = gguf.TokenType
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * len(tokens))
    writer.add_token_types([kinds.UNKNOWN, kinds.CONTROL, kinds.CONTROL, *[kinds.BYTE] * 256])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    return len(tokens)


def _finish(writer: gguf.GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
