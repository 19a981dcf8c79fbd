"""Which batch-invariant kernels belong to this machine and its libllama, and telling the engine of them.

The engine loads them before libllama (`plugins/_llama/kernels.py`), wherever the environment names them. Linux on
x86-64 only: elsewhere the loader does not let one library take the place of another's function, or the processor sums
in another way.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import importlib.util
import os
import platform
import sys
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from pilotfish.daemon.config.paths import cache_dir
from pilotfish.daemon.config.types import Config
from pilotfish.hooks.environment import switched_off, variable
from pilotfish.hooks.errors import ConfigError
from pilotfish.hooks.kernels import KERNELS

PACKAGE = "llama-cpp-python"
SOURCE = resources.files("pilotfish.daemon.kernels") / "batch_invariant.cpp"
FOLDER = "kernels"

_CPUINFO = Path("/proc/cpuinfo")
_NEEDED = frozenset({"avx2", "fma", "f16c"})


@dataclass(frozen=True, slots=True)
class InstalledLibllama:
    """llama-cpp-python's version, and the folder of its libraries."""

    version: str
    folder: Path


def installed_libllama() -> InstalledLibllama | None:
    """The one that is installed; None where there is none, or it was installed without libraries."""
    spec = importlib.util.find_spec("llama_cpp")  # finds the package without importing it
    for place in spec.submodule_search_locations or () if spec else ():
        folder = Path(place) / "lib"
        if any(path.name.startswith("libggml-base.") for path in folder.glob("lib*")):
            return InstalledLibllama(importlib.metadata.version(PACKAGE), folder)
    return None


def obstacle() -> str:
    """Why there can be no kernels on this machine; empty where there can."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return "batch-invariant kernels are for Linux on x86-64"
    lacking = sorted(_NEEDED - set(_features()))
    return f"this processor lacks {', '.join(lacking)}, which the kernels need" if lacking else ""


def kernel_folders() -> list[Path]:
    """Where kernels may lie: in the user's cache folder, and in the Python environment, which others can read, too, as
    the user that Ollama runs as."""
    with contextlib.suppress(ConfigError):  # a user without a home folder
        return [cache_dir() / FOLDER, _environments()]
    return [_environments()]


def folder_to_build_in() -> Path:
    """The Python environment's, where it can be written to and no cache folder was named. Raises ConfigError."""
    if variable("PILOTFISH_CACHE") or not os.access(sys.prefix, os.W_OK):
        return cache_dir() / FOLDER
    return _environments()


def _environments() -> Path:
    return Path(sys.prefix) / "share" / "pilotfish" / FOLDER


def kernels_path(folder: Path, version: str) -> Path:
    """The kernels in `folder` for this processor and that version of llama-cpp-python."""
    made_of = SOURCE.read_bytes() + " ".join(_features()).encode()
    return folder / f"batch-invariant-{version}-{hashlib.sha256(made_of).hexdigest()[:12]}.so"


def built_kernels() -> Path | None:
    """The library that `pilotfish kernels-build` made for what is installed here; None where there is none."""
    folders = [folder for folder in kernel_folders() if folder.is_dir()]
    libllama = installed_libllama() if folders and not obstacle() else None
    paths = (kernels_path(folder, libllama.version) for folder in folders) if libllama else iter(())
    return next((path for path in paths if path.is_file()), None)


def kernels_lack(config: Config) -> bool:
    """Whether they are wanted, could be built here, and are not."""
    wanted = config.engine.kernels != "off" and not switched_off(KERNELS) and not obstacle()
    return wanted and installed_libllama() is not None and built_kernels() is None


def take_kernels(config: Config) -> None:
    """Name them to the engine, or no longer: a daemon outlives its config. A library that is loaded stays.

    With far ends they are left out: the same model's other layers are computed without them there.
    """
    if switched_off(KERNELS):
        return
    afar = config.engine.rpc or any(model.rpc for model in config.models.values())
    path = None if config.engine.kernels == "off" or afar else built_kernels()
    if path:
        os.environ[KERNELS] = str(path)
    else:
        os.environ.pop(KERNELS, None)


def _features() -> list[str]:
    """What the processor can do, as Linux names it, sorted."""
    try:
        lines = _CPUINFO.read_text().splitlines()
    except OSError:
        return []
    return sorted(next((line for line in lines if line.startswith("flags")), "").partition(":")[2].split())
