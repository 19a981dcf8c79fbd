"""Tiny models with random weights and a vocabulary of bytes, of the architectures that other engines build too."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np

from tests.plugins.verifiers.tiny_gguf import add_byte_vocabulary

N_VOCAB = 259
EMBD, HEADS, KV_HEADS, HEAD, HIDDEN = 64, 4, 2, 32, 96  # heads twice as large as they need to be
F32 = gguf.GGMLQuantizationType.F32


def write_family(
    path: Path,
    architecture: str = "llama",
    *,
    layers: int = 2,
    context: int = 512,
    stored: gguf.GGMLQuantizationType = F32,
    rounded: gguf.GGMLQuantizationType = F32,
    factors: bool = False,
    tied: bool = True,
    scaling: str = "",
) -> Path:
    """`stored` is the type of the matrices in the file; `rounded` rounds them to what that type can hold first."""
    head = EMBD // HEADS if architecture == "qwen2" else HEAD
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_context_length(context)
    writer.add_embedding_length(EMBD)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(HIDDEN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_key_length(head)
    writer.add_value_length(head)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(head)
    writer.add_rope_freq_base(10000.0)
    if scaling:
        writer.add_rope_scaling_type(gguf.RopeScalingType(scaling))
        writer.add_rope_scaling_factor(4.0)
    assert add_byte_vocabulary(writer) == N_VOCAB
    random = np.random.default_rng(11)

    def tensor(name: str, *shape: int) -> None:
        data = random.normal(0, 0.35, shape).astype(np.float32)
        if len(shape) == 1:
            writer.add_tensor(name, data)
            return
        data = gguf.quants.dequantize(gguf.quants.quantize(data, rounded), rounded) if rounded != F32 else data
        writer.add_tensor(name, gguf.quants.quantize(data, stored), raw_dtype=stored)

    tensor("token_embd.weight", N_VOCAB, EMBD)
    tensor("output_norm.weight", EMBD)
    if not tied:
        tensor("output.weight", N_VOCAB, EMBD)
    if factors:
        writer.add_tensor("rope_freqs.weight", np.linspace(1, 8, head // 2).astype(np.float32))
    for i in range(layers):
        for name, rows in (("attn_q", HEADS * head), ("attn_k", KV_HEADS * head), ("attn_v", KV_HEADS * head)):
            tensor(f"blk.{i}.{name}.weight", rows, EMBD)
            if architecture == "qwen2":
                tensor(f"blk.{i}.{name}.bias", rows)
        if architecture == "qwen3":
            tensor(f"blk.{i}.attn_q_norm.weight", head)
            tensor(f"blk.{i}.attn_k_norm.weight", head)
        tensor(f"blk.{i}.attn_norm.weight", EMBD)
        tensor(f"blk.{i}.ffn_norm.weight", EMBD)
        tensor(f"blk.{i}.attn_output.weight", EMBD, HEADS * head)
        tensor(f"blk.{i}.ffn_gate.weight", HIDDEN, EMBD)
        tensor(f"blk.{i}.ffn_up.weight", HIDDEN, EMBD)
        tensor(f"blk.{i}.ffn_down.weight", EMBD, HIDDEN)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
