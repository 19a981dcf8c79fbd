"""Compiling what packages come without, in a process of the compiler that is there."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence

from pilotfish.hooks.errors import EngineError, WorldError

_COMPILERS = ("c++", "g++", "clang++")


def compiler() -> str:
    """The C++ compiler: $CXX, else the first that is found. Raises WorldError, with the remedy, where there is none."""
    wanted = (os.environ["CXX"],) if os.environ.get("CXX") else _COMPILERS
    for name in wanted:
        if found := shutil.which(name):
            return found
    raise WorldError(
        f"a C++ compiler is needed, and there is no {' or '.join(wanted)}. Debian and Ubuntu: "
        "sudo apt-get install g++; macOS: xcode-select --install"
    )


def run_or_fail(command: Sequence[str], failure: str) -> str:
    """What `command` prints. Raises EngineError: `failure`, and the first error that it names."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if "error" in line.lower()] or done.stderr.splitlines()
        raise EngineError(f"{failure}: {said[0].strip() if said else f'exit code {done.returncode}'}")
    return done.stdout
