"""Which number formats a GGUF's weights have, as far as the choice of lane depends on it."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

from pilotfish.plugins.verifiers._llama_library import lib

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


class _GgufInit(ctypes.Structure):
    _fields_ = (("no_alloc", ctypes.c_bool), ("ctx", ctypes.c_void_p))


def tensor_types(path: Path) -> dict[str, int]:
    """Name and ggml type of every tensor of a GGUF that libllama has already accepted.

    ggml's own reader, because the `gguf` package builds a Python object per vocabulary entry: a second for
    150,000 tokens against milliseconds.
    """
    ggml = ctypes.CDLL(lib._lib._name)  # the loaded library again; its dependencies' symbols resolve through it
    ggml.gguf_init_from_file.restype = ctypes.c_void_p
    ggml.gguf_init_from_file.argtypes = [ctypes.c_char_p, _GgufInit]
    ggml.gguf_free.argtypes = [ctypes.c_void_p]
    ggml.gguf_get_n_tensors.restype = ctypes.c_int64
    ggml.gguf_get_n_tensors.argtypes = [ctypes.c_void_p]
    ggml.gguf_get_tensor_name.restype = ctypes.c_char_p
    ggml.gguf_get_tensor_name.argtypes = [ctypes.c_void_p, ctypes.c_int64]
    ggml.gguf_get_tensor_type.restype = ctypes.c_int
    ggml.gguf_get_tensor_type.argtypes = [ctypes.c_void_p, ctypes.c_int64]
    handle = ggml.gguf_init_from_file(os.fsencode(path), _GgufInit(True, None))
    if not handle:
        return {}
    try:
        count = ggml.gguf_get_n_tensors(handle)
        return {
            ggml.gguf_get_tensor_name(handle, i).decode("utf-8", "replace"): ggml.gguf_get_tensor_type(handle, i)
            for i in range(count)
        }
    finally:
        ggml.gguf_free(handle)
