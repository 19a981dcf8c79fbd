"""What a libllama looks like from outside, printed as JSON: `python -m pilotfish.ollama_overlay.abi`.

llama-cpp-python describes the C structures of one build. Against another build's library that description may be
wrong, which shows as garbage or a crash, so this is a process of its own. Importing the package looks every function
up, so a missing symbol ends it too. `LLAMA_CPP_LIB_PATH` says whose library it is.
"""

from __future__ import annotations

import ctypes
import json
import platform
import sys
from typing import Any

SENTINEL = 0xA5
SPARE = 512  # bytes beyond the structure that must stay as they were


def main() -> int:
    """Print the version and every default of the parameter structures."""
    from llama_cpp import llama_cpp as lib

    structures = {
        "llama_model_default_params": lib.llama_model_params,
        "llama_context_default_params": lib.llama_context_params,
        "llama_sampler_chain_default_params": lib.llama_sampler_chain_params,
    }
    described: dict[str, Any] = {"version": (lib.llama_version() or b"").decode("utf-8", "replace")}
    for function, structure in structures.items():
        described[function] = _values(getattr(lib, function)())
        described[f"{function} fits"] = _fits(lib._lib, function, structure)
    sys.stdout.write(json.dumps(described))
    return 0


def _values(defaults: ctypes.Structure) -> dict[str, Any]:
    """Numbers as they are; of pointers only whether they are set, because their values are no defaults."""
    found = {}
    for name, *_ in defaults._fields_:
        value = getattr(defaults, name)
        found[name] = value if isinstance(value, (bool, int, float)) and not name.startswith("cb_") else bool(value)
    return found


def _fits(library: ctypes.CDLL, function: str, structure: type[ctypes.Structure]) -> bool:
    """Whether the function writes no further than the structure goes.

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


if __name__ == "__main__":
    sys.exit(main())
