"""A GGUF's header by ggml's own reader: numbers in the metadata, and the tensors' types.

The `gguf` package builds a Python object per vocabulary entry: a second for 150,000 tokens against milliseconds.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pilotfish.plugins._llama.library import lib

_UINT8, _INT8, _UINT16, _INT16, _UINT32, _INT32, _STRING, _ARRAY, _UINT64, _INT64 = 0, 1, 2, 3, 4, 5, 8, 9, 10, 11
_INTEGERS: dict[int, tuple[str, Any]] = {
    _UINT8: ("u8", ctypes.c_uint8),
    _INT8: ("i8", ctypes.c_int8),
    _UINT16: ("u16", ctypes.c_uint16),
    _INT16: ("i16", ctypes.c_int16),
    _UINT32: ("u32", ctypes.c_uint32),
    _INT32: ("i32", ctypes.c_int32),
    _UINT64: ("u64", ctypes.c_uint64),
    _INT64: ("i64", ctypes.c_int64),
}


class _Init(ctypes.Structure):
    _fields_ = (("no_alloc", ctypes.c_bool), ("ctx", ctypes.c_void_p))


class GgufHeader:
    """An open header."""

    def __init__(self, handle: int) -> None:
        self._handle, self._ggml = handle, _ggml()

    def numbers(self, key: str) -> tuple[int, ...]:
        """The whole numbers under `key`: one, or as many as the array holds; empty where there are none."""
        ggml, handle = self._ggml, self._handle
        found = ggml.gguf_find_key(handle, key.encode())
        if found < 0:
            return ()
        kind = ggml.gguf_get_kv_type(handle, found)
        if kind in _INTEGERS:
            return (getattr(ggml, f"gguf_get_val_{_INTEGERS[kind][0]}")(handle, found),)
        inner = _INTEGERS.get(ggml.gguf_get_arr_type(handle, found)) if kind == _ARRAY else None
        if inner is None:
            return ()
        count = ggml.gguf_get_arr_n(handle, found)
        return tuple((inner[1] * count).from_address(ggml.gguf_get_arr_data(handle, found))) if count else ()

    def number(self, key: str, default: int = 0) -> int:
        """The largest of the numbers under `key`."""
        return max(self.numbers(key), default=default)

    def text(self, key: str) -> str:
        """The string under `key`; empty where there is none."""
        found = self._ggml.gguf_find_key(self._handle, key.encode())
        if found < 0 or self._ggml.gguf_get_kv_type(self._handle, found) != _STRING:
            return ""
        text: bytes = self._ggml.gguf_get_val_str(self._handle, found)
        return text.decode("utf-8", "replace")

    def tensors(self) -> dict[str, int]:
        """Name and ggml type of every tensor."""
        ggml, handle = self._ggml, self._handle
        return {
            ggml.gguf_get_tensor_name(handle, i).decode("utf-8", "replace"): ggml.gguf_get_tensor_type(handle, i)
            for i in range(ggml.gguf_get_n_tensors(handle))
        }


@contextmanager
def open_gguf(path: Path) -> Iterator[GgufHeader | None]:
    """The header of the GGUF at `path`, None when ggml's reader refuses it."""
    handle = _ggml().gguf_init_from_file(os.fsencode(path), _Init(True, None))
    try:
        yield GgufHeader(handle) if handle else None
    finally:
        if handle:
            _ggml().gguf_free(handle)


@functools.cache
def _ggml() -> Any:
    ggml = ctypes.CDLL(lib._lib._name)  # the loaded library again; its dependencies' symbols resolve through it
    pointer, name, index = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int64
    signatures: dict[str, tuple[Any, list[Any]]] = {
        "gguf_init_from_file": (pointer, [name, _Init]),
        "gguf_free": (None, [pointer]),
        "gguf_find_key": (index, [pointer, name]),
        "gguf_get_kv_type": (ctypes.c_int, [pointer, index]),
        "gguf_get_val_str": (name, [pointer, index]),
        "gguf_get_arr_type": (ctypes.c_int, [pointer, index]),
        "gguf_get_arr_n": (ctypes.c_size_t, [pointer, index]),
        "gguf_get_arr_data": (pointer, [pointer, index]),
        "gguf_get_n_tensors": (index, [pointer]),
        "gguf_get_tensor_name": (name, [pointer, index]),
        "gguf_get_tensor_type": (ctypes.c_int, [pointer, index]),
        **{f"gguf_get_val_{short}": (kind, [pointer, index]) for short, kind in _INTEGERS.values()},
    }
    for function, (result, arguments) in signatures.items():
        getattr(ggml, function).restype = result
        getattr(ggml, function).argtypes = arguments
    return ggml
