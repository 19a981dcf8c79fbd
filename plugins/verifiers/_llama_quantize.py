"""Writing a GGUF again in another number format, with libllama's own quantizer."""

from __future__ import annotations

import os
from pathlib import Path

from pilotfish.hooks.errors import EngineError, UsageError
from pilotfish.plugins._cells.setting import default_threads
from pilotfish.plugins._llama.library import last_words, lib

_PREFIX = "LLAMA_FTYPE_MOSTLY_"


def requantize(source: Path, target: Path, kind: str) -> None:
    """Write `source` to `target` as `kind` (`Q4_0`, `Q4_K_M`, `F16`, ...); the file appears when it is whole.

    Weights that are already quantized are quantized again, which costs quality: this is for tests and experiments.
    Raises UsageError for an unknown kind and EngineError when libllama fails.
    """
    ftype = getattr(lib, _PREFIX + kind, None)
    if ftype is None:
        known = ", ".join(sorted(name.removeprefix(_PREFIX) for name in dir(lib) if name.startswith(_PREFIX)))
        raise UsageError(f"unknown quantization {kind!r}; libllama has {known}")
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f"{target.name}.{os.getpid()}.partial")
    params = lib.llama_model_quantize_default_params()
    params.ftype, params.allow_requantize, params.nthread = ftype, True, default_threads()
    last_words()
    if lib.llama_model_quantize(bytes(source), bytes(partial), params) != 0:
        partial.unlink(missing_ok=True)
        raise EngineError(f"{source} could not be written as {kind}: {last_words()}")
    partial.replace(target)
