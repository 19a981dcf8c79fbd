"""Which number formats a GGUF's weights have, as far as the choice of lane depends on it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pilotfish.hooks.errors import BrokenModel
from pilotfish.manifests.gguf_header import TensorInfo, read_header

_UNIFORM = frozenset({"Q4_0", "Q4_1", "Q8_0"})
_FLOATS = frozenset({"F32", "F16", "BF16"})


def is_uniform(paths: tuple[Path, ...]) -> bool:
    """Whether every matrix is Q4_0, Q4_1 or Q8_0, the formats that ggml multiplies alike at every width, or of floats,
    which it multiplies alike from two rows on. A file whose header cannot be read is not uniform.
    """
    try:
        tensors = [read_header(path).tensors for path in paths]
    except BrokenModel:
        return False
    return all(found and all(tensor.type in _UNIFORM | _FLOATS for tensor in found) for found in tensors)


def has_floats(paths: tuple[Path, ...], alike: Mapping[str, int]) -> bool:
    """Whether a matrix of floats is multiplied, be it the small one that chooses experts, but for those of the types in
    `alike` whose rows' lengths are multiples of what stands there. Raises BrokenModel."""
    return any(
        tensor.type in _FLOATS and not _is_elementwise(tensor) and not _is_alike(tensor, alike)
        for path in paths
        for tensor in read_header(path).tensors
    )


def _is_alike(tensor: TensorInfo, alike: Mapping[str, int]) -> bool:
    return tensor.type in alike and tensor.shape[0] % alike[tensor.type] == 0


def _is_elementwise(tensor: TensorInfo) -> bool:
    """Whether it is never a matrix product: norms, biases, rotary factors, convolutions, decays."""
    name = tensor.name
    parts = ("norm", "rope_", "ssm_conv1d", "shortconv.conv")
    return len(tensor.shape) == 1 or any(part in name for part in parts) or name.endswith((".bias", "ssm_a", "ssm_d"))
