"""Opening a context: the sequences of it, each with what its model's memory can give back."""

from __future__ import annotations

from typing import Any

from pilotfish.hooks.errors import EngineError
from pilotfish.plugins._llama.context import LlamaContext
from pilotfish.plugins._llama.library import last_words, lib
from pilotfish.plugins._llama.running_context import RunningContext
from pilotfish.plugins._llama.windowed_context import WindowedContext


def open_sequences(model: Any, params: Any, name: str, max_width: int) -> list[LlamaContext]:
    """The `params.n_seq_max` sequences of a new context. Raises EngineError."""
    handle = lib.llama_init_from_model(model, params)
    if not handle:
        raise EngineError(f"{name}: no context of {params.n_ctx} tokens could be made: {last_words()}")
    return [_sequence(model, handle, params, name, max_width, sequence) for sequence in range(params.n_seq_max)]


def _sequence(model: Any, handle: Any, params: Any, name: str, max_width: int, sequence: int) -> LlamaContext:
    if is_running(model):
        return RunningContext(model, handle, params, name, max_width, sequence)
    window = lib.llama_model_n_swa(model)
    if window > 0 and not params.swa_full:
        return WindowedContext(model, handle, params, name, max_width, sequence, window)
    return LlamaContext(model, handle, params, name, max_width, sequence)


def is_running(model: Any) -> bool:
    """Whether some of the model's layers keep a state instead of cells."""
    return bool(lib.llama_model_is_recurrent(model) or lib.llama_model_is_hybrid(model))
