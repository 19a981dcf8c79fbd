"""Batch-invariant kernels: several columns of a product with float weights have the bits of each column alone.

libllama computes one column by its dot product and several by `llamafile_sgemm`, with other last bits. The library that
$PILOTFISH_KERNELS names has a function of that name; it must be loaded before libllama, so that the loader finds it
first (`daemon/kernels/batch_invariant.cpp`). It is a part of the engine's fingerprint.
"""

from __future__ import annotations

import ctypes
import os
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from pilotfish.hooks.errors import EngineError
from pilotfish.hooks.far_end import BUILT_FOR
from pilotfish.hooks.kernels import KERNEL_TYPES, KERNELS
from pilotfish.plugins._llama.build import own_folder

_PACKAGE = "llama-cpp-python"
_CPU = "libggml-cpu.so"
_REMEDY = 'build them again with: pilotfish kernels-build, or set [engine] kernels = "off"'


def kernels_for(folder: Path) -> Path | None:
    """The kernels that go with the libllama in `folder`, found without loading anything; None where there are none.

    Their file's name has the version of llama-cpp-python whose ggml they were made for.
    """
    named = Path(os.environ.get(KERNELS, "").strip() or os.devnull)
    if not named.is_file() or not (folder / _CPU).is_file():
        return None
    return named if f"-{_version_in(folder)}-" in named.name else None


def _version_in(folder: Path) -> str:
    built_for = folder / BUILT_FOR
    if built_for.is_file():
        return built_for.read_text().strip()
    try:
        return version(_PACKAGE) if folder == own_folder() else ""
    except PackageNotFoundError:
        return ""


class Kernels:
    """The library, loaded. libllama must not be yet."""

    def __init__(self, path: Path) -> None:
        """Raises EngineError, with the remedy, when it cannot be loaded."""
        self._path = path
        try:
            self._library = ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
            self._begin = self._library.pilotfish_batch_invariant_begin
            self._multiple = self._library.pilotfish_batch_invariant_multiple
        except (OSError, AttributeError) as error:
            raise EngineError(f"the kernels in {path} cannot be loaded: {error}; {_REMEDY}") from error
        self._begin.argtypes, self._begin.restype = [ctypes.c_void_p], ctypes.c_uint32

    def begin(self, libllama: ctypes.CDLL) -> dict[str, int]:
        """Compute for that library from now on. The types whose products are computed here, and what the length of a
        row has to be a multiple of.

        Raises EngineError where nothing is: whoever loaded libllama before has bound its functions.
        """
        computed = self._begin(libllama._handle)
        found = {name: self._multiple(number) for name, number in KERNEL_TYPES.items() if computed >> number & 1}
        if not found:
            raise EngineError(
                f"the kernels in {self._path} compute nothing: something, a plugin perhaps, loaded libllama before "
                f"pilotfish did, or its libraries were replaced; {_REMEDY}"
            )
        return found
