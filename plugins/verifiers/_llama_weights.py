"""Which number formats a GGUF's weights have, as far as the choice of lane depends on it."""

from __future__ import annotations

from pathlib import Path

from pilotfish.hooks.errors import BrokenModel
from pilotfish.manifests.gguf_header import TensorInfo, read_header

_UNIFORM = frozenset({"Q4_0", "Q4_1", "Q8_0"})


def is_uniform(paths: tuple[Path, ...]) -> bool:
    """Whether every matrix is Q4_0, Q4_1 or Q8_0, the formats that ggml multiplies alike at every width.

    F32 counts only for what is never a matrix product: norms, biases, rotary factors, convolutions. A file whose header
    cannot be read is not uniform.
    """
    try:
        tensors = [read_header(path).tensors for path in paths]
    except BrokenModel:
        return False
    return all(found and all(map(_is_uniform, found)) for found in tensors)


def _is_uniform(tensor: TensorInfo) -> bool:
    name = tensor.name
    elementwise = len(tensor.shape) == 1 or "norm" in name or "conv" in name or name.startswith("rope_")
    elementwise = elementwise or "ffn_gate_inp" in name  # chooses experts; alike from two rows on
    return tensor.type in _UNIFORM or (tensor.type == "F32" and elementwise)
