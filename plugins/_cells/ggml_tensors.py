"""ggml's tensors from outside: their names, shapes and bytes, through the library that made them.

ggml has functions for most of it. Shapes, strides and sources stand in the structure alone: where, is found out with
a product of two empty tensors, so that another build's layout is refused instead of misread.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pilotfish.hooks.errors import EngineError

_POINTER, _TEXT, _SIZE = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t
_WORD = ctypes.sizeof(ctypes.c_void_p)
_F32 = 0
_ROOM = 1 << 16  # bytes for a few tensors without data
_NUMBERS: dict[str, np.dtype[Any]] = {  # of so many bytes; their digests need no more
    "f32": np.dtype(np.float32),
    "f16": np.dtype(np.uint16),
    "bf16": np.dtype(np.uint16),
    "i32": np.dtype(np.int32),
}


class _Head(ctypes.Structure):
    """The beginning of `ggml_tensor`, which llama.cpp and its relatives share."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("backend", ctypes.c_int),  # or padding
        ("buffer", ctypes.c_void_p),
        ("ne", ctypes.c_int64 * 4),
        ("nb", ctypes.c_size_t * 4),
        ("op", ctypes.c_int),
    )


class _InitParams(ctypes.Structure):
    _fields_ = (("mem_size", _SIZE), ("mem_buffer", _POINTER), ("no_alloc", ctypes.c_bool))


@dataclass(frozen=True, slots=True)
class TensorFacts:
    """What there is to know of one. `shape` and `strides` (bytes) are innermost first."""

    name: str
    kind: str
    number_format: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class TensorReader:
    """Reads tensors of one `library`. Raises EngineError when it lacks a function or lays them out in another way."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self._name_of = self._function("ggml_get_name", _POINTER, _POINTER)
        self._kind_of = self._function("ggml_op_desc", _TEXT, _POINTER)
        self._type_name = self._function("ggml_type_name", _TEXT, ctypes.c_int)
        self._bytes_of = self._function("ggml_nbytes", _SIZE, _POINTER)
        self._get = self._function("ggml_backend_tensor_get", None, _POINTER, _POINTER, _SIZE, _SIZE)
        self._sources_at = self._layout()

    def facts(self, tensor: int) -> TensorFacts:
        """All but the numbers."""
        head = _Head.from_address(tensor)
        kind, number_format = self._kind_of(tensor), self._type_name(head.type)
        return TensorFacts(self._name(tensor), _text(kind), _text(number_format), tuple(head.ne), tuple(head.nb))

    def stored_source(self, tensor: int) -> tuple[str, str]:
        """Name and number format of its first source where that is stored and not computed; else empty."""
        source = _POINTER.from_address(tensor + self._sources_at).value
        if not source or (head := _Head.from_address(source)).op:
            return "", ""
        return self._name(source), _text(self._type_name(head.type))

    def numbers(self, tensor: int, facts: TensorFacts) -> npt.NDArray[Any] | None:
        """Its numbers, outermost axis first; None where a number is no whole number of bytes."""
        if not (kind := _NUMBERS.get(facts.number_format)):
            return None
        data = self.bytes(tensor)
        shape, strides = facts.shape[::-1], facts.strides[::-1]
        return np.lib.stride_tricks.as_strided(data[: kind.itemsize].view(kind), shape, strides, writeable=False)

    def bytes(self, tensor: int) -> npt.NDArray[np.uint8]:
        """Its memory, copied from wherever it is."""
        data = np.empty(self._bytes_of(tensor), np.uint8)
        self._get(tensor, data.ctypes.data, 0, data.nbytes)
        return data

    def _name(self, tensor: int) -> str:
        return _text(ctypes.string_at(self._name_of(tensor)))

    def _function(self, name: str, result: Any, *arguments: Any) -> Any:
        """A function object of our own: what the package declared for it stays as it is."""
        try:
            return ctypes.CFUNCTYPE(result, *arguments)((name, self._library))
        except AttributeError as error:
            raise EngineError(f"this build cannot be looked into: it has no {name}") from error

    def _layout(self) -> int:
        """Where in the structure the sources begin."""
        make = self._function("ggml_init", _POINTER, _InitParams)
        tensor_2d = self._function("ggml_new_tensor_2d", _POINTER, _POINTER, ctypes.c_int, *[ctypes.c_int64] * 2)
        product = self._function("ggml_mul_mat", _POINTER, _POINTER, _POINTER, _POINTER)
        context = make(_InitParams(_ROOM, None, True))
        try:
            a, b = tensor_2d(context, _F32, 3, 5), tensor_2d(context, _F32, 3, 7)
            return self._sources(product(context, a, b), a, b)
        finally:
            self._function("ggml_free", None, _POINTER)(context)

    def _sources(self, tensor: int, *expected: int) -> int:
        head, end = _Head.from_address(tensor), self._name_of(tensor) - tensor
        if (tuple(head.ne), tuple(head.nb)[:2]) == ((5, 7, 1, 1), (4, 20)) and 0 < end <= _ROOM:
            for at in range(ctypes.sizeof(_Head), end - _WORD, _WORD):
                if tuple((_POINTER * 2).from_address(tensor + at)) == expected:
                    return at
        raise EngineError("this build cannot be looked into: its tensors are laid out in a way unknown here")


def _text(name: bytes | None) -> str:
    return (name or b"").decode("utf-8", "replace")
