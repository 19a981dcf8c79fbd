"""Which libllama would be loaded, its fingerprint and its devices, without loading it.

A lane may need an environment variable that the library reads when it loads, so the certificate that names the
lane has to be found before.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

from pilotfish.hooks.errors import EngineError, EngineMissing
from pilotfish.plugins._cells import fingerprint

INSTALL = "pip install 'pilotfish[llama]'"
SECONDS = 60.0  # a bound on failure: on an idle machine it takes 0.3

_ON_CPUS = ("ggml.", "ggml-base", "ggml-cpu", "ggml-blas", "ggml-rpc", "llama")  # how their names begin after "lib"


def expected_folder() -> Path:
    """The folder that llama-cpp-python loads libllama from. Raises EngineMissing when it is not installed."""
    spec = importlib.util.find_spec("llama_cpp")  # finds the package without importing it
    if spec and (named := os.environ.get("LLAMA_CPP_LIB_PATH")):
        return Path(named)
    if folder := own_folder():
        return folder
    raise EngineMissing(f"libllama is not installed; install it with: {INSTALL}")


def own_folder() -> Path | None:
    """llama-cpp-python's own folder of libraries, whichever would be loaded; None when it is not installed."""
    spec = importlib.util.find_spec("llama_cpp")
    for folder in spec.submodule_search_locations or () if spec else ():
        return Path(folder) / "lib"
    return None


def fingerprint_of(folder: Path, state_dir: Path | None) -> str:
    """A SHA-256 (hex) over the libraries in `folder` and the kernels that go with them; each file is hashed once per
    state of it. Raises EngineError."""
    from pilotfish.plugins._llama.kernels import kernels_for

    try:
        if any(fingerprint.is_library(path.name) for path in folder.iterdir()):
            return fingerprint.fingerprint_of((folder,), state_dir, kernels_for(folder))
    except OSError as error:
        raise EngineError(f"libllama cannot be read in {folder}: {error.strerror}; {_remedy()}") from error
    raise EngineError(f"{folder} holds no libllama; {_remedy()}")


def devices(folder: Path) -> tuple[str, ...]:
    """ggml's names of the accelerators that the libllama in `folder` may put layers on.

    Where a backend beside the processor's lies there, it is asked in a process of its own. Raises EngineError.
    """
    if not any(_is_for_accelerators(path.name) for path in folder.iterdir()):
        return ()
    command = [sys.executable, "-P", "-m", "pilotfish.plugins._llama.devices"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=SECONDS, check=True)
        return tuple(json.loads(done.stdout.splitlines()[-1]))
    except (OSError, ValueError, IndexError, subprocess.SubprocessError) as error:
        raise EngineError(f"libllama in {folder} cannot be asked for its devices: {error}; {_remedy()}") from error


def _is_for_accelerators(name: str) -> bool:
    return fingerprint.is_library(name) and not name.removeprefix("lib").startswith(_ON_CPUS)


def _remedy() -> str:
    if os.environ.get("LLAMA_CPP_LIB_PATH"):
        return "let LLAMA_CPP_LIB_PATH name the folder of its libraries, or unset it"
    return f"install it again with: {INSTALL}"
