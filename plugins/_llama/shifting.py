"""Moving cells down after a full context forgot some: in place, or in another context and back.

libllama turns keys to their new positions by itself, at the next forward, where it can compute with their type. It
cannot with bf16, which the exact lanes use, and would end the process. Keys of that type are written into a context
beside this one as f16, turned there, and written back. Both types have two bytes, and every bf16 in the range of f16
is an f16, so only what turning rounds is lost.

The state of a sequence, as libllama writes it: magic, sequence, number of streams (of the context, which has one for
each of its sequences); for each stream its number of cells, and where there are some: each one's position and the ids
of its sequences; whether values are transposed, number of layers; for each layer the type of its keys, the bytes of a
row, the rows; then the same for values.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import numpy.typing as npt

from pilotfish.plugins._llama.library import lib

Bytes = npt.NDArray[np.uint8]

F16, BF16 = 1, 30  # ggml's numbers for the types of keys
_HEAD = 3  # 32-bit words before the numbers of cells: magic, sequence, streams
_CELL = 3  # 32-bit words of a cell of one sequence: position, number of sequences, the sequence


class CannotMove(Exception):
    """A sequence's state is not laid out as described above, or a key is out of the range of f16."""


def forget(memory: Any, sequence: int, keep: int, discard: int) -> bool:
    """Forget the cells at `keep` to `keep + discard`, and have those behind them turned at the next forward.

    False for a memory that has no cells to forget (recurrent, hybrid).
    """
    if not lib.llama_memory_seq_rm(memory, sequence, keep, keep + discard):
        return False
    lib.llama_memory_seq_add(memory, sequence, keep + discard, -1, -discard)
    return True


def turned_beside(handle: Any, sequence: int, beside: Any, size: int, keep: int, discard: int) -> bool:
    """The same for bf16 keys of `size` cells, with the help of an empty context `beside`, of one sequence and f16 keys.

    False where it cannot be done, which only what the cells hold decides; the sequence is whole then, or empty.
    """
    kept = size - discard
    try:
        state, place = alone(_state(handle, sequence))
        memory = lib.llama_get_memory(beside)
        if not _written(beside, 0, retyped(without(state, keep, discard), F16)):
            return False
        lib.llama_memory_seq_add(memory, 0, keep + discard, -1, -discard)
        if not _forwarded(beside, kept):  # which turns the keys
            return False
        lib.llama_memory_seq_rm(memory, 0, kept, -1)
        state = among(retyped(_state(beside, 0), BF16), place)
    except CannotMove:
        return False
    lib.llama_memory_seq_rm(lib.llama_get_memory(handle), sequence, -1, -1)
    return _written(handle, sequence, state)


def alone(state: Bytes) -> tuple[Bytes, tuple[int, int]]:
    """The state as a context of one stream would write it, and its place: how many empty streams before and behind.

    Raises CannotMove.
    """
    streams = _words(state, _HEAD - 1, 1)[0] if len(state) >= 4 * (_HEAD + 1) else 0
    counts = state[4 * _HEAD : 4 * (_HEAD + streams)].view(np.uint32)
    before = int((counts != 0).argmax()) if streams else 0
    if not streams or not counts[before]:
        raise CannotMove("it has no cells")
    behind = streams - before - 1
    end = len(state) - 4 * behind
    if state[end:].any():
        raise CannotMove("several streams have cells")
    head = np.array([*_words(state, 0, _HEAD - 1), 1], dtype=np.uint32)
    return np.concatenate([_bytes(head), state[4 * (_HEAD + before) : end]]), (before, behind)


def among(state: Bytes, place: tuple[int, int]) -> Bytes:
    """What `alone` took apart."""
    before, behind = place
    head = np.array([*_words(state, 0, _HEAD - 1), before + 1 + behind, *[0] * before], dtype=np.uint32)
    return np.concatenate([_bytes(head), state[4 * _HEAD :], np.zeros(4 * behind, dtype=np.uint8)])


def without(state: Bytes, keep: int, discard: int) -> Bytes:
    """A state of one stream without the cells at `keep` to `keep + discard`. Raises CannotMove."""
    count = _words(state, _HEAD, 1)[0]
    cells, at = _cells(state, count)
    if not np.array_equal(cells[:, 0], np.arange(count)):
        raise CannotMove("its cells do not lie in the order of their positions")
    stays = np.r_[0:keep, keep + discard : count]
    head = state[: 4 * (_HEAD + 1)].copy()
    head[4 * _HEAD :].view(np.uint32)[0] = len(stays)
    transposed, layers = _words(state, at // 4, 2)
    if transposed:
        raise CannotMove("its values are transposed")
    parts = [head, _bytes(cells[stays]), state[at : at + 8]]
    at += 8
    for _ in range(2 * layers):  # keys, then values
        rows = _rows(state, at, count)
        parts += [state[at : at + 12], rows[stays].reshape(-1)]
        at += 12 + rows.size
    if at != len(state):
        raise CannotMove(f"{len(state) - at} bytes are left over")
    return np.concatenate(parts)


def retyped(state: Bytes, kind: int) -> Bytes:
    """A state of one stream with its keys as `kind`, F16 or BF16, if they are the other one. Raises CannotMove."""
    changed = state.copy()
    count = _words(state, _HEAD, 1)[0]
    at = _cells(state, count)[1]
    layers = _words(state, at // 4, 2)[1]
    at += 8
    for _ in range(layers):
        was = changed[at : at + 4].view(np.int32)
        if was[0] not in (F16, BF16):
            raise CannotMove(f"its keys are of type {was[0]}")
        keys = _rows(changed, at, count).reshape(-1)
        if was[0] != kind:
            keys[:] = _bytes(_to_f16(keys.view(np.uint16)) if kind == F16 else _to_bf16(keys.view(np.float16)))
            was[0] = kind
        at += 12 + keys.size
    return changed


def _to_f16(keys: npt.NDArray[np.uint16]) -> npt.NDArray[np.float16]:
    """Raises CannotMove."""
    with np.errstate(over="ignore"):
        found = (keys.astype(np.uint32) << 16).view(np.float32).astype(np.float16)
    if not np.isfinite(found).all():
        raise CannotMove("a key is out of the range of f16")
    return found


def _to_bf16(keys: npt.NDArray[np.float16]) -> npt.NDArray[np.uint16]:
    """To the nearest; to the even one of two."""
    bits = keys.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def _cells(state: Bytes, count: int) -> tuple[npt.NDArray[np.int32], int]:
    """The cells, `(count, 3)`, and the byte behind them. Raises CannotMove."""
    start, end = 4 * (_HEAD + 1), 4 * (_HEAD + 1 + _CELL * count)
    if end + 8 > len(state):
        raise CannotMove("it is shorter than its cells")
    cells = state[start:end].view(np.int32).reshape(count, _CELL)
    if not (cells[:, 1] == 1).all():
        raise CannotMove("its cells belong to other sequences, too")
    return cells, end


def _rows(state: Bytes, at: int, count: int) -> Bytes:
    """A layer's rows, `(count, bytes)`, of what begins at byte `at`: a view. Raises CannotMove."""
    size = int(state[at + 4 : at + 12].copy().view(np.uint64)[0]) if at + 12 <= len(state) else 0
    if not size or at + 12 + count * size > len(state):
        raise CannotMove("it is shorter than its layers")
    return state[at + 12 : at + 12 + count * size].reshape(count, size)


def _words(state: Bytes, at: int, n: int) -> tuple[int, ...]:
    return tuple(int(word) for word in state[4 * at : 4 * (at + n)].view(np.uint32))


def _bytes(values: npt.NDArray[Any]) -> Bytes:
    return np.ascontiguousarray(values).reshape(-1).view(np.uint8)


def _state(handle: Any, sequence: int) -> Bytes:
    lib.llama_synchronize(handle)
    data = np.empty(lib.llama_state_seq_get_size(handle, sequence), dtype=np.uint8)
    if lib.llama_state_seq_get_data(handle, _pointer(data), data.nbytes, sequence) != data.nbytes:
        raise CannotMove("it cannot be read")
    return data


def _written(handle: Any, sequence: int, state: Bytes) -> bool:
    return bool(lib.llama_state_seq_set_data(handle, _pointer(state), state.nbytes, sequence))


def _pointer(data: Bytes) -> Any:
    return data.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))


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
