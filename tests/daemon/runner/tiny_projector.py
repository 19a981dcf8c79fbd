"""A projector with random weights, of the smallest kind that llama-server reads: an image becomes one embedding."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt

EMBD, HIDDEN, HEADS = 32, 64, 2
IMAGE, PATCH, MERGED = 32, 8, 4  # pixels, pixels, and patches of a side that become one


def write_tiny_projector(path: Path, n_embd: int) -> Path:
    """One layer in front of a text model whose embeddings have `n_embd` numbers, F32."""
    writer = gguf.GGUFWriter(path, "clip")
    writer.add_type("mmproj")
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_bool("clip.has_vision_encoder", True)
    writer.add_bool("clip.use_gelu", True)
    writer.add_string("clip.projector_type", "gemma3")
    writer.add_array("clip.vision.image_mean", [0.5, 0.5, 0.5])
    writer.add_array("clip.vision.image_std", [0.5, 0.5, 0.5])
    writer.add_float32("clip.vision.attention.layer_norm_epsilon", 1e-6)
    numbers = {
        "image_size": IMAGE,
        "patch_size": PATCH,
        "embedding_length": EMBD,
        "feed_forward_length": HIDDEN,
        "block_count": 1,
        "attention.head_count": HEADS,
        "projection_dim": n_embd,
        "projector.scale_factor": MERGED,
    }
    for key, value in numbers.items():
        writer.add_uint32(f"clip.vision.{key}", value)
    for name, tensor in _tensors(n_embd, np.random.default_rng(3)):
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _tensors(n_embd: int, random: np.random.Generator) -> Iterator[tuple[str, npt.NDArray[np.float32]]]:
    def noise(*shape: int) -> npt.NDArray[np.float32]:
        return 0.1 * random.standard_normal(shape, dtype=np.float32)

    yield "v.patch_embd.weight", noise(EMBD, 3, PATCH, PATCH)
    yield "v.patch_embd.bias", noise(EMBD)
    yield "v.position_embd.weight", noise((IMAGE // PATCH) ** 2, EMBD)
    for name in ("attn_q", "attn_k", "attn_v", "attn_out"):
        yield f"v.blk.0.{name}.weight", noise(EMBD, EMBD)
        yield f"v.blk.0.{name}.bias", noise(EMBD)
    for name, rows, columns in (("ffn_up", HIDDEN, EMBD), ("ffn_down", EMBD, HIDDEN)):
        yield f"v.blk.0.{name}.weight", noise(rows, columns)
        yield f"v.blk.0.{name}.bias", noise(rows)
    for name in ("v.blk.0.ln1", "v.blk.0.ln2", "v.post_ln"):
        yield f"{name}.weight", 1 + noise(EMBD)
        yield f"{name}.bias", noise(EMBD)
    yield "mm.input_projection.weight", noise(EMBD, n_embd)
    yield "mm.soft_emb_norm.weight", 1 + noise(EMBD)
