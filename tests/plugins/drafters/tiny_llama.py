"""A tiny model with random weights and another model's tokenizer: a drafter that costs next to nothing and is wrong."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np

from pilotfish.manifests.gguf import read_metadata
from pilotfish.manifests.gguf_header import ArrayRef, Value

Q8_0 = gguf.GGMLQuantizationType.Q8_0
EMBD, HEADS, KV_HEADS, HIDDEN = 32, 4, 2, 64


def write_tiny_llama(path: Path, tokenizer_of: Path, *, layers: int = 1, context: int = 2048, seed: int = 7) -> Path:
    """`layers` layers of 32 dimensions, tied embeddings, Q8_0, whose rows do not depend on the block they are
    computed in; the tokenizer is that of the GGUF `tokenizer_of`.
    """
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(context)
    writer.add_embedding_length(EMBD)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(HIDDEN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(EMBD // HEADS)
    n_vocab = _copy_tokenizer(writer, tokenizer_of)
    _add_tensors(writer, layers, n_vocab, np.random.default_rng(seed))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _copy_tokenizer(writer: gguf.GGUFWriter, source: Path) -> int:
    values = read_metadata(source).values
    for key, value in values.items():
        if key.startswith("tokenizer.ggml."):
            _copy(writer, key, value)
    tokens = values["tokenizer.ggml.tokens"]
    assert isinstance(tokens, ArrayRef)
    return tokens.count


def _copy(writer: gguf.GGUFWriter, key: str, value: Value) -> None:
    if isinstance(value, ArrayRef):
        strings = value.element is gguf.GGUFValueType.STRING
        writer.add_array(key, value.strings() if strings else list(value.numbers()))
    elif isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    else:
        writer.add_float32(key, value)


def _add_tensors(writer: gguf.GGUFWriter, layers: int, n_vocab: int, random: np.random.Generator) -> None:
    def tensor(name: str, *shape: int) -> None:
        data = random.normal(0, 0.3, shape).astype(np.float32)
        if len(shape) == 1:
            writer.add_tensor(f"{name}.weight", data)
        else:
            writer.add_tensor(f"{name}.weight", gguf.quants.quantize(data, Q8_0), raw_dtype=Q8_0)

    size = EMBD // HEADS * KV_HEADS
    tensor("token_embd", n_vocab, EMBD)
    tensor("output_norm", EMBD)
    for i in range(layers):
        tensor(f"blk.{i}.attn_norm", EMBD)
        tensor(f"blk.{i}.ffn_norm", EMBD)
        tensor(f"blk.{i}.attn_q", EMBD, EMBD)
        tensor(f"blk.{i}.attn_k", size, EMBD)
        tensor(f"blk.{i}.attn_v", size, EMBD)
        tensor(f"blk.{i}.attn_output", EMBD, EMBD)
        tensor(f"blk.{i}.ffn_gate", HIDDEN, EMBD)
        tensor(f"blk.{i}.ffn_up", HIDDEN, EMBD)
        tensor(f"blk.{i}.ffn_down", EMBD, HIDDEN)
