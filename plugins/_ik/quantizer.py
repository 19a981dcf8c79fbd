"""Writing a GGUF again in another number format, with the quantizer that ik_llama.cpp's wheel brings as a program."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from pilotfish.hooks.errors import EngineError
from pilotfish.plugins._cells.setting import default_threads
from pilotfish.plugins._ik import build

SECONDS = 3600.0  # a bound on failure: 135M weights take 2 s on two cores


def requantize(source: Path, target: Path, kind: str) -> None:
    """Write `source` to `target` as `kind` (`Q4_0`, `Q4_K_M`, ...); the file appears when it is whole.

    Weights that are already quantized are quantized again, which costs quality: this is for tests and experiments.
    Raises EngineError.
    """
    program = build.library().parent.parent / "bin" / "llama-quantize"
    if not program.is_file():
        raise EngineError(f"{program} is not there: ik-llama-cpp-python was installed without its programs")
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f"{target.name}.{os.getpid()}.partial")
    command = [str(part) for part in (program, "--allow-requantize", source, partial, kind, default_threads())]
    try:
        done = subprocess.run(command, capture_output=True, timeout=SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        partial.unlink(missing_ok=True)
        raise EngineError(f"{source} could not be written as {kind}: {error}") from error
    if done.returncode != 0 or not partial.is_file():
        partial.unlink(missing_ok=True)
        said = (done.stderr or done.stdout).decode("utf-8", "replace").strip().splitlines()
        raise EngineError(f"{source} could not be written as {kind}: {said[-1] if said else done.returncode}")
    partial.replace(target)
