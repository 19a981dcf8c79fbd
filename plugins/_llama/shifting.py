"""Moving cells down after a full context forgot some: in place, or in another context and back.

libllama turns keys to their new positions by itself, at the next forward, where it can compute with their type. It
cannot with bf16, which the exact lanes use, and would end the process. Keys of that type are written into a context
beside this one as f16, turned there, and written back. Both types have two bytes, and every bf16 in the range of f16
is an f16, so only what turning rounds is lost.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from pilotfish.hooks.errors import EngineError
from pilotfish.plugins._cells.context import Bytes
from pilotfish.plugins._llama.half_floats import BF16, F16
from pilotfish.plugins._llama.library import lib
from pilotfish.plugins._llama.sequence_state import SequenceState, parse

_BYTES = ctypes.POINTER(ctypes.c_uint8)


def forget(memory: Any, sequence: int, keep: int, discard: int) -> bool:
    """Forget the cells at `keep` to `keep + discard`, and have those behind them turned at the next forward.

    False for a memory that has no cells to forget (recurrent, hybrid).
    """
    if not lib.llama_memory_seq_rm(memory, sequence, keep, keep + discard):
        return False
    lib.llama_memory_seq_add(memory, sequence, keep + discard, -1, -discard)
    return True


def turned_beside(handle: Any, sequence: int, beside: Any, size: int, keep: int, discard: int) -> bool:
    """The same for bf16 keys of `size` cells, with the help of an empty context `beside`, of one sequence and f16 keys,
    that has room for the cells which move and one more.

    False where it cannot be done, which only what the cells hold decides; the sequence is whole then, or empty.
    """
    try:
        whole = parse(_state(handle, sequence))
        moves = turnable(whole.part(keep + discard, size))
        memory = lib.llama_get_memory(beside)
        if not _write(beside, 0, moves.alone().written()):
            return False
        lib.llama_memory_seq_add(memory, 0, keep + discard, -1, -discard)
        if not _forwarded(beside, size - discard):  # which turns the keys
            return False
        lib.llama_memory_seq_rm(memory, 0, size - discard, -1)
        turned = parse(_state(beside, 0)).with_keys(F16, BF16)
        result = whole.part(0, keep).written(turned)
    except (EngineError, OverflowError):
        return False
    lib.llama_memory_seq_rm(lib.llama_get_memory(handle), sequence, -1, -1)
    return _write(handle, sequence, result)


def turnable(state: SequenceState) -> SequenceState:
    """`state` with its bf16 keys as f16. Raises UnknownLayout, or OverflowError where f16 cannot hold one or it is no
    number."""
    found = state.with_keys(BF16, F16)
    if any(np.isnan(layer.rows.view(np.float16)).any() for layer in found.sides[0]):
        raise OverflowError("a key is no number")
    return found


def _state(handle: Any, sequence: int) -> Bytes:
    lib.llama_synchronize(handle)
    data = np.empty(lib.llama_state_seq_get_size(handle, sequence), dtype=np.uint8)
    if lib.llama_state_seq_get_data(handle, data.ctypes.data_as(_BYTES), data.nbytes, sequence) != data.nbytes:
        raise EngineError("a sequence's state cannot be read")
    return data


def _write(handle: Any, sequence: int, state: Bytes) -> bool:
    return bool(lib.llama_state_seq_set_data(handle, state.ctypes.data_as(_BYTES), state.nbytes, sequence))


def _forwarded(handle: Any, position: int) -> bool:
    """One forward of any token, without a row."""
    batch = lib.llama_batch_init(1, 0, 1)
    try:
        batch.token[0], batch.pos[0] = 0, position
        batch.n_seq_id[0], batch.seq_id[0][0], batch.logits[0] = 1, 0, False
        batch.n_tokens = 1
        return int(lib.llama_decode(handle, batch)) == 0
    finally:
        lib.llama_batch_free(batch)
