"""Tiny GGUF files with random weights, for what the small real model cannot show."""

from __future__ import annotations

import os
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
    writer = _attending(path, "gemma3", layers, hidden, heads, size)
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


def write_llama(
    path: Path,
    architecture: str = "llama",
    *,
    split: str = "",
    kind: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.F32,
    without: str = "",
) -> Path:
    """One layer of plain attention under the name of any architecture.

    `split` makes a vocabulary of merges with this pre-tokenizer of the bytes; `kind` is what the file says of its
    matrices, whose weights are zeros unless it is F32; `without` leaves a tensor out.
    """
    random = np.random.default_rng(7)
    size = 256  # every number format has blocks of at most as many
    writer = _one_layer(path, architecture, size, hidden=size)
    n_vocab = _add_merges(writer, split) if split else add_byte_vocabulary(writer)
    writer.add_tensor("token_embd.weight", random.normal(0, 0.3, (n_vocab, size)).astype(np.float32))
    for norm in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"):
        writer.add_tensor(f"{norm}.weight", np.ones(size, np.float32))
    block, bytes_each = gguf.GGML_QUANT_SIZES[kind]
    for matrix in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"):
        name = f"blk.0.{matrix}.weight"
        if name == without:
            continue
        if kind is gguf.GGMLQuantizationType.F32:
            writer.add_tensor(name, random.normal(0, 0.3, (size, size)).astype(np.float32))
        else:
            writer.add_tensor(name, np.zeros((size, size // block * bytes_each), np.uint8), raw_dtype=kind)
    _finish(writer)
    return path


def write_vast(path: Path) -> Path:
    """A layer of 12 GB, which the file has room for and does not hold."""
    size, hidden = 256, 1 << 22
    writer = _one_layer(path, "llama", size, hidden=hidden)
    shapes = {"token_embd": (add_byte_vocabulary(writer), size), "output_norm": (size,)}
    shapes |= {f"blk.0.{norm}_norm": (size,) for norm in ("attn", "ffn")}
    shapes |= {f"blk.0.attn_{matrix}": (size, size) for matrix in ("q", "k", "v", "output")}
    shapes |= {"blk.0.ffn_gate": (hidden, size), "blk.0.ffn_up": (hidden, size), "blk.0.ffn_down": (size, hidden)}
    for name, shape in shapes.items():
        writer.add_tensor_info(f"{name}.weight", shape, np.dtype(np.float32), 4 * int(np.prod(shape)))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    os.truncate(path, 4 * sum(int(np.prod(shape)) for shape in shapes.values()) + (1 << 20))
    return path


def write_hybrid(path: Path, layers: int = 4) -> Path:
    """As Qwen 3.5: three layers with a running state, then one with attention."""
    random = np.random.default_rng(11)
    heads, size, hidden, groups, ranks = 2, 32, 64, 2, 4
    inner, state = 128, 32
    convolved = 2 * groups * state + inner
    writer = _attending(path, "qwen35", layers, hidden, heads, size)
    writer.add_rope_dimension_count(16)
    writer.add_array("qwen35.rope.dimension_sections", [4, 2, 2, 0])
    writer.add_uint32("qwen35.full_attention_interval", layers)
    writer.add_ssm_conv_kernel(CONV)
    writer.add_ssm_inner_size(inner)
    writer.add_ssm_state_size(state)
    writer.add_ssm_group_count(groups)
    writer.add_ssm_time_step_rank(ranks)
    n_vocab = add_byte_vocabulary(writer)
    attention = {
        "attn_q.weight": (2 * heads * size, EMBD),
        "attn_k.weight": (size, EMBD),
        "attn_v.weight": (size, EMBD),
        "attn_output.weight": (EMBD, heads * size),
        "attn_q_norm.weight": (size,),
        "attn_k_norm.weight": (size,),
    }
    running = {
        "attn_qkv.weight": (convolved, EMBD),
        "attn_gate.weight": (inner, EMBD),
        "ssm_alpha.weight": (ranks, EMBD),
        "ssm_beta.weight": (ranks, EMBD),
        "ssm_conv1d.weight": (convolved, CONV),
        "ssm_dt.bias": (ranks,),
        "ssm_a": (ranks,),
        "ssm_norm.weight": (state,),
        "ssm_out.weight": (EMBD, inner),
    }
    either = {
        "attn_norm.weight": (EMBD,),
        "post_attention_norm.weight": (EMBD,),
        "ffn_gate.weight": (hidden, EMBD),
        "ffn_up.weight": (hidden, EMBD),
        "ffn_down.weight": (EMBD, hidden),
    }
    shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (n_vocab, EMBD), "output_norm.weight": (EMBD,)}
    for i in range(layers):
        own = attention if i == layers - 1 else running
        shapes |= {f"blk.{i}.{name}": shape for name, shape in {**either, **own}.items()}
    for name, shape in shapes.items():
        writer.add_tensor(name, random.normal(0, 0.3, shape).astype(np.float32))
    _finish(writer)
    return path


def _one_layer(path: Path, architecture: str, size: int, *, hidden: int) -> gguf.GGUFWriter:
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_context_length(512)
    writer.add_embedding_length(size)
    writer.add_block_count(1)
    writer.add_feed_forward_length(hidden)
    writer.add_head_count(4)
    writer.add_head_count_kv(4)
    writer.add_layer_norm_rms_eps(1e-6)
    return writer


def _attending(path: Path, architecture: str, layers: int, hidden: int, heads: int, size: int) -> gguf.GGUFWriter:
    """A writer that has said what attention needs: `heads` of queries and one of keys and values, all of `size`."""
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_context_length(512)
    writer.add_embedding_length(EMBD)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(hidden)
    writer.add_head_count(heads)
    writer.add_head_count_kv(1)
    writer.add_key_length(size)
    writer.add_value_length(size)
    writer.add_layer_norm_rms_eps(1e-6)
    return writer


def _add_merges(writer: gguf.GGUFWriter, split: str) -> int:
    tokens = [*map(chr, range(ord("!"), ord("~") + 1)), "\u0120", "\u010a", "ab", "<|end|>"]
    kinds = gguf.TokenType
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(split)
    writer.add_token_list(tokens)
    writer.add_token_types([kinds.NORMAL] * (len(tokens) - 1) + [kinds.CONTROL])
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(len(tokens) - 1)
    writer.add_eos_token_id(len(tokens) - 1)
    return len(tokens)


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
