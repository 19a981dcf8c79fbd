"""A limit for what models take on a ggml device: what it reports, and what it hands out.

ggml has no such setting. Its devices and buffer types are tables of functions (ggml-backend-impl.h), and three entries
are replaced by functions of ours: what a device says of its memory, how its buffers are made, and how they are freed. A
buffer that would exceed the limit is refused as one is for which there is no memory: the near end's load fails, and
nothing else does. Other devices' code recognizes its buffers by how they are freed, so for them what is taken is what
they had free at the start and have no more.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from pilotfish.hooks.errors import EngineError

_GET_NAME, _GET_MEMORY = 0, 2  # in ggml_backend_device_i
_TYPE_NAME, _ALLOC_BUFFER = 0, 1  # in ggml_backend_buffer_type_i
_FREE_BUFFER = 0  # in ggml_backend_buffer_i

_Handle, _Size = ctypes.c_void_p, ctypes.c_size_t
_Name = ctypes.CFUNCTYPE(ctypes.c_char_p, _Handle)
_GetMemory = ctypes.CFUNCTYPE(None, _Handle, ctypes.POINTER(_Size), ctypes.POINTER(_Size))
_AllocBuffer = ctypes.CFUNCTYPE(_Handle, _Handle, _Size)
_FreeBuffer = ctypes.CFUNCTYPE(None, _Handle)


class DeviceLimit:
    """In force from the moment it is made until the process ends. Keep it: the device calls into it."""

    def __init__(self, ggml: Any, device: int, limit: int, is_processor: bool) -> None:
        """`ggml` has the functions of devices and buffer types with their signatures, `limit` is in bytes.

        Raises EngineError where the tables are not laid out as expected.
        """
        kind = ggml.ggml_backend_dev_buffer_type(device)
        same = _entry(device, _GET_NAME, _Name)(device) == ggml.ggml_backend_dev_name(device)
        if not same or _entry(kind, _TYPE_NAME, _Name)(kind) != ggml.ggml_backend_buft_name(kind):
            raise EngineError("no limit can be set on the devices of this libllama; leave out --memory")
        self.limit = limit
        self._device, self._counts = device, is_processor
        self._get_memory = _entry(device, _GET_MEMORY, _GetMemory)
        self._alloc_buffer = _entry(kind, _ALLOC_BUFFER, _AllocBuffer)
        self._free_buffer: Callable[[int], None] | None = None  # known with the first buffer
        self._sizes: dict[int, int] = {}  # bytes of each buffer
        self._taken = 0
        self._free_before, _ = self._ask(device)
        self._ours = _GetMemory(self._tell), _AllocBuffer(self._alloc), _FreeBuffer(self._free)
        _replace(device, _GET_MEMORY, self._ours[0])
        _replace(kind, _ALLOC_BUFFER, self._ours[1])

    @property
    def used(self) -> int:
        """Bytes that models have taken; safe from any thread."""
        return self._taken if self._counts else max(0, self._free_before - self._ask(self._device)[0])

    def _ask(self, device: int) -> tuple[int, int]:
        free, total = _Size(), _Size()
        self._get_memory(device, ctypes.byref(free), ctypes.byref(total))
        return free.value, total.value

    def _tell(self, device: int, free: Any, total: Any) -> None:
        there, all_of_it = self._ask(device)
        total[0] = min(self.limit, all_of_it)
        free[0] = min(max(0, self.limit - self.used), there)

    def _alloc(self, kind: int, size: int) -> int | None:
        if self.used + size > self.limit:
            return None
        buffer: int | None = self._alloc_buffer(kind, size)
        if buffer and self._counts:
            self._sizes[buffer] = size
            self._taken += size
            self._free_buffer = _entry(buffer, _FREE_BUFFER, _FreeBuffer)
            _replace(buffer, _FREE_BUFFER, self._ours[2])
        return buffer

    def _free(self, buffer: int) -> None:
        assert self._free_buffer is not None
        self._taken -= self._sizes.pop(buffer)
        self._free_buffer(buffer)


def _entry(table: int, index: int, kind: Any) -> Any:
    """The function at `index` of the table that a device, a buffer type or a buffer begins with."""
    return kind(_slot(table, index).value)


def _replace(table: int, index: int, function: Any) -> None:
    _slot(table, index).value = ctypes.cast(function, _Handle).value


def _slot(table: int, index: int) -> ctypes.c_void_p:
    return _Handle.from_address(table + index * ctypes.sizeof(_Handle))
