"""Model files that are small, and complete enough to be listed, described and "loaded" by a fake runner."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np


def write_gguf(
    path: Path,
    *,
    template: str | None = "{{ messages }}",
    pooling: bool = False,
    salt: int = 0,
    architecture: str = "llama",
) -> Path:
    """A GGUF with one small tensor, enough to be listed and described."""
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_name("tiny")
    writer.add_context_length(4096)
    writer.add_embedding_length(8)
    writer.add_block_count(1)
    writer.add_file_type(2)
    writer.add_token_list(["a", "b", "c"])
    if template is not None:
        writer.add_chat_template(template)
    if pooling:
        writer.add_pooling_type(gguf.PoolingType.MEAN)
    writer.add_tensor("token_embd.weight", np.full((32, 32), salt, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
