"""Compiles the batch-invariant kernels, in seconds, and tries whether they compute in the place of ggml's function."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from pilotfish.daemon.config.files import load_or_last_good
from pilotfish.daemon.kernels.kernels_here import (
    PACKAGE,
    SOURCE,
    InstalledLibllama,
    built_kernels,
    folder_to_build_in,
    installed_libllama,
    kernels_path,
    obstacle,
)
from pilotfish.daemon.processes.compiling import compiler, run_or_fail
from pilotfish.hooks.environment import switched_off
from pilotfish.hooks.errors import EngineError, EngineMissing, PilotfishError, WorldError
from pilotfish.hooks.kernels import KERNEL_TYPES, KERNELS

_INSTALL = "pip install 'pilotfish[llama]'"
_FLAGS = ("-O3", "-march=native", "-std=c++17", "-fPIC", "-shared")
_TRIES = """
import ctypes, pathlib, sys
kernels = ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL)
folder = pathlib.Path(sys.argv[2])
libllama = ctypes.CDLL(str(folder / "libllama.so"))
kernels.pilotfish_batch_invariant_begin.restype = ctypes.c_uint32
print(kernels.pilotfish_batch_invariant_begin(ctypes.c_void_p(libllama._handle)))
"""


def build_kernels(folder: Path) -> tuple[Path, tuple[str, ...]]:
    """Make the library for what is installed here in `folder`, and try it. The library, and the types that it computes.

    Raises EngineMissing without llama-cpp-python, WorldError without a compiler or on another kind of machine, and
    EngineError when it does not compile or computes nothing.
    """
    if why := obstacle():
        raise WorldError(f"{why}; models with float weights decode here as they did")
    libllama = installed_libllama()
    if libllama is None:
        raise EngineMissing(f"{PACKAGE} is not installed with its libraries; install it with: {_INSTALL}")
    program, path = compiler(), kernels_path(folder, libllama.version)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".batch-invariant-") as scratch:
            types = _compiled(program, Path(scratch), path, libllama)
    except OSError as error:
        where = f"kernels cannot be written to {path.parent}: {error.strerror}"
        raise WorldError(f"{where}; name another cache folder with PILOTFISH_CACHE") from error
    return path, types


def _compiled(program: str, scratch: Path, path: Path, libllama: InstalledLibllama) -> tuple[str, ...]:
    """Compile in `scratch`, try what comes out, and put it at `path`. The types that it computes."""
    source, made = scratch / "batch_invariant.cpp", scratch / path.name
    source.write_bytes(SOURCE.read_bytes())
    prefix = f"-ffile-prefix-map={scratch}=."  # the same bytes each time: certificates hold for a fingerprint
    command = [program, *_FLAGS, prefix, str(source), "-o", str(made), "-ldl"]
    run_or_fail(command, f"the kernels cannot be compiled with {program}")
    types = _computed(made, libllama)
    made.replace(path)
    return types


def make_kernels() -> str:
    """Make the library unless it is there; in a line for people, what it is for, or why there is none."""
    try:
        if switched_off(KERNELS):
            return f"none: {KERNELS} says so"
        if load_or_last_good().engine.kernels == "off":
            return 'none: [engine] kernels = "off"'
        path = built_kernels() or build_kernels(folder_to_build_in())[0]
    except PilotfishError as error:
        return f"none: {error}"
    return f"models in F16 and BF16, and those with experts, can speculate on libllama: {path}"


def _computed(kernels: Path, libllama: InstalledLibllama) -> tuple[str, ...]:
    """Types whose products have the bits of ggml's dot products. Raises EngineError where there are none."""
    command = [sys.executable, "-I", "-c", _TRIES, str(kernels), str(libllama.folder)]
    said = run_or_fail(command, "the kernels were compiled and do not load").strip()
    types = tuple(name for name, number in KERNEL_TYPES.items() if said.isdecimal() and int(said) >> number & 1)
    if not types:
        raise EngineError(
            f"the kernels compute nothing for {PACKAGE} {libllama.version}: ggml does not come to them, or sums in "
            "another way; models with float weights decode here as they did"
        )
    return types
