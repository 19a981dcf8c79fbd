"""Which number formats a GGUF's weights have, as far as the choice of lane depends on it."""

from __future__ import annotations

from pathlib import Path

from pilotfish.plugins._llama.gguf import open_gguf
from pilotfish.plugins._llama.library import lib

_F32 = lib.GGML_TYPE_F32
_UNIFORM = frozenset({lib.GGML_TYPE_Q4_0, lib.GGML_TYPE_Q4_1, lib.GGML_TYPE_Q8_0})


def is_uniform(paths: tuple[Path, ...]) -> bool:
    """Whether every matrix is Q4_0, Q4_1 or Q8_0, the formats that ggml multiplies alike at every width.

    F32 counts only for what is never a matrix product: norms, biases, rotary factors. A file that ggml's
    reader refuses is not uniform.
    """
    kinds = [tensor_types(path) for path in paths]
    return all(types and all(map(_is_uniform, types, types.values())) for types in kinds)


def _is_uniform(name: str, kind: int) -> bool:
    elementwise = "norm" in name or name.endswith(".bias") or name.startswith("rope_")
    return kind in _UNIFORM or (kind == _F32 and elementwise)


def tensor_types(path: Path) -> dict[str, int]:
    """Name and ggml type of every tensor of a GGUF; empty when ggml's reader refuses the file."""
    with open_gguf(path) as header:
        return header.tensors() if header else {}
