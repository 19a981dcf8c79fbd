"""Whether a C library's structures are as described here: what calls through ctypes depend on, and cannot see."""

from __future__ import annotations

import ctypes
import platform
from typing import Any

SENTINEL = 0xA5
SPARE = 512  # bytes beyond the structure that must stay as they were


def values(structure: ctypes.Structure) -> dict[str, Any]:
    """Numbers as they are; of pointers only whether they are set, because their values are no defaults."""
    found = {}
    for name, *_ in structure._fields_:
        value = getattr(structure, name)
        found[name] = value if isinstance(value, (bool, int, float)) and not name.startswith("cb_") else bool(value)
    return found


def fits(library: ctypes.CDLL, function: str, structure: type[ctypes.Structure]) -> bool:
    """Whether the function, which returns the structure, writes no further than the structure goes.

    Where structures are returned through a pointer that is the first argument (x86-64), the function is called with
    one to a larger, marked piece of memory. Elsewhere this cannot be seen, and counts as yes.
    """
    size = ctypes.sizeof(structure)
    if platform.machine() not in ("x86_64", "AMD64") or size <= 16:
        return True
    memory = (ctypes.c_ubyte * (size + SPARE))(*([SENTINEL] * (size + SPARE)))
    call = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)((function, library))
    call(ctypes.addressof(memory))
    return all(byte == SENTINEL for byte in memory[size:])
