"""libggml-rpc: llama.cpp's own way to compute layers on other machines, beside a libllama that was built without it.

`add_server` is the near end's, `start_server` the far end's. Its protocol has no authentication and no version of
libllama in it: whoever uses it has to know that both ends are the same build.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pilotfish.hooks.errors import EngineError
from pilotfish.hooks.far_end import BUILT_FOR

MOST_SERVERS = 16  # far ends of one process
BUILD = "pilotfish rpc-build"

_PACKAGE = "llama-cpp-python"
_NAMES = ("libggml-rpc.so", "libggml-rpc.dylib")


def rpc_library_in(folder: Path) -> Path:
    """libggml-rpc beside the libllama in `folder`, found without loading anything.

    Raises EngineError with the remedy when it is not there, or was built beside another version of libllama than the
    one that the installed package is made for.
    """
    path = next((folder / name for name in _NAMES if (folder / name).is_file()), None)
    if path is None:
        raise EngineError(
            f"{folder} holds no libggml-rpc, which far ends need: run `{BUILD}`, then set [engine] libllama to the "
            "folder that it names"
        )
    with contextlib.suppress(FileNotFoundError):
        built, installed = (folder / BUILT_FOR).read_text().strip(), version(_PACKAGE)
        if built != installed:
            raise EngineError(
                f"{folder} was made of {_PACKAGE} {built}, and {installed} is installed now: run `{BUILD}` again"
            )
    return path


class RpcLibrary:
    """The functions of libggml-rpc, and those of ggml that take apart what it returns. Handles are addresses."""

    def __init__(self, folder: Path) -> None:
        """Load it from beside the libllama in `folder`. Raises EngineError, with the remedy."""
        path = rpc_library_in(folder)
        try:
            self._rpc = _typed(ctypes.CDLL(str(path)))
        except (OSError, AttributeError) as error:
            raise EngineError(
                f"{path} cannot be loaded: {error}; build it for this libllama with: {BUILD} --output {folder}"
            ) from error

    def add_server(self, endpoint: str) -> int:
        """The registry entry (`ggml_backend_reg_t`) of the far end at `endpoint`, HOST:PORT with an IPv4 address or a
        name; the same one each time.

        Raises EngineError when it has no device. A far end that cannot be reached, or breaks off, *ends this process*
        (ggml aborts): ask its /health before.
        """
        handle: int | None = self._rpc.ggml_backend_rpc_add_server(endpoint.encode())
        if not handle:
            raise EngineError(f"the far end {endpoint} has no device to compute on; see what it says at its start")
        return handle

    def devices_of(self, registry_entry: int) -> list[int]:
        """The devices (`ggml_backend_dev_t`) of what `add_server` returned, in the far end's order."""
        count = self._rpc.ggml_backend_reg_dev_count(registry_entry)
        return [self._rpc.ggml_backend_reg_dev_get(registry_entry, i) for i in range(count)]

    def start_server(self, endpoint: str, cache: Path | None, threads: int, devices: Sequence[int]) -> None:
        """Serve `devices` at `endpoint`, one near end after the other; returns only when it cannot listen there."""
        handles = (ctypes.c_void_p * len(devices))(*devices)
        folder = str(cache).encode() if cache else None
        self._rpc.ggml_backend_rpc_start_server(endpoint.encode(), folder, threads, len(devices), handles)


def _typed(library: ctypes.CDLL) -> Any:
    """`library` with its signatures; those of libggml-base resolve through it, which depends on that."""
    handle, text, size = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t
    signatures: dict[str, tuple[Any, list[Any]]] = {
        "ggml_backend_rpc_add_server": (handle, [text]),
        "ggml_backend_rpc_start_server": (None, [text, text, size, size, ctypes.POINTER(handle)]),
        "ggml_backend_reg_dev_count": (size, [handle]),
        "ggml_backend_reg_dev_get": (handle, [handle, size]),
    }
    for function, (result, arguments) in signatures.items():
        getattr(library, function).restype = result
        getattr(library, function).argtypes = arguments
    return library
