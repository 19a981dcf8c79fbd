"""The devices that libllama computes on, and the memory they report.

`python -m pilotfish.plugins._llama.devices` prints `accelerators()` as JSON, for a process that must not
load libllama yet.
"""

from __future__ import annotations

import ctypes
import functools
import json
import sys
from typing import Any

from pilotfish.hooks.types import DeviceMemory
from pilotfish.plugins._llama.library import lib

_GPU, _INTEGRATED = 1, 2  # ggml_backend_dev_type; 0 is the CPU, 3 a CPU's helper such as BLAS
_SHARE_WITH_SYSTEM = ("Metal", "MTL")  # what ggml calls Apple's devices; it lists them as plain GPUs


def accelerators() -> tuple[str, ...]:
    """ggml's names of the devices that layers may be put on, in its order; empty on a machine with CPUs only."""
    return tuple(name for name, kind, _ in _devices() if kind in (_GPU, _INTEGRATED))


def local_devices() -> tuple[int, ...]:
    """Handles of `accelerators()`."""
    return tuple(handle for _, kind, handle in _devices() if kind in (_GPU, _INTEGRATED))


def device_memory(device: str) -> DeviceMemory | None:
    """What `device` (ggml's name, in any case) reports at this moment; None when there is no such device."""
    for name, kind, handle in _devices():
        if name.lower() == device.lower() and kind in (_GPU, _INTEGRATED):
            free, total = ctypes.c_size_t(), ctypes.c_size_t()
            ggml_functions().ggml_backend_dev_memory(handle, ctypes.byref(free), ctypes.byref(total))
            shared = kind == _INTEGRATED or name.startswith(_SHARE_WITH_SYSTEM)
            return DeviceMemory(free.value, total.value, shared)
    return None


def device_for(gpu_layers: int | None) -> str:
    """Where a model loaded with that many layers off the CPU takes its memory: the first accelerator, or `cpu`."""
    found = accelerators() if gpu_layers != 0 else ()
    return found[0] if found else "cpu"


def _devices() -> list[tuple[str, int, int]]:
    ggml = ggml_functions()
    handles = [ggml.ggml_backend_dev_get(i) for i in range(ggml.ggml_backend_dev_count())]
    return [(ggml.ggml_backend_dev_name(h).decode(), ggml.ggml_backend_dev_type(h), h) for h in handles]


@functools.cache
def ggml_functions() -> Any:
    """ggml's functions of devices and buffer types, with their signatures. Handles are addresses."""
    ggml = ctypes.CDLL(lib._lib._name)  # the loaded library again; its dependencies' symbols resolve through it
    device, buffer_type, size = ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t
    signatures: dict[str, tuple[Any, list[Any]]] = {
        "ggml_backend_dev_count": (size, []),
        "ggml_backend_dev_get": (device, [size]),
        "ggml_backend_dev_name": (ctypes.c_char_p, [device]),
        "ggml_backend_dev_description": (ctypes.c_char_p, [device]),
        "ggml_backend_dev_type": (ctypes.c_int, [device]),
        "ggml_backend_dev_memory": (None, [device, ctypes.POINTER(size), ctypes.POINTER(size)]),
        "ggml_backend_dev_buffer_type": (buffer_type, [device]),
        "ggml_backend_buft_name": (ctypes.c_char_p, [buffer_type]),
        "ggml_backend_load_all_from_path": (None, [ctypes.c_char_p]),
    }
    for function, (result, arguments) in signatures.items():
        getattr(ggml, function).restype = result
        getattr(ggml, function).argtypes = arguments
    return ggml


if __name__ == "__main__":
    sys.stdout.write(json.dumps(accelerators()) + "\n")
