"""A fake probe that can be looked into: a small model of two layers, whose attention is what depends on the width."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from pilotfish.daemon.certify.probe_driver import Deadline
from pilotfish.daemon.certify.reproductions import ForwardShape, Reproduction
from pilotfish.daemon.lab.diagnose.diagnosing import Diagnosing
from pilotfish.daemon.lab.diagnose.diagnosis import Diagnosis
from pilotfish.hooks.inspection import CellsPart, Operation, Trace
from pilotfish.hooks.types import EngineSetting
from tests.fakes.probe import FakeProbe

STOCK = EngineSetting()
OPERATIONS = (  # name, kind, weights
    ("embd", "GET_ROWS", "token_embd.weight"),
    ("Kcur-0", "MUL_MAT", "blk.0.attn_k.weight"),
    ("node_2", "FLASH_ATTN_EXT", ""),
    ("ffn_out-0", "MUL_MAT", "blk.0.ffn_down.weight"),
    ("result_output", "MUL_MAT", "output.weight"),
)
ATTENTION = 2


class TracedProbe(FakeProbe):
    """From operation `at` on outputs depend on the kernel. With `shy` a forward that is looked into has other rows."""

    def __init__(self, *args, at: int = ATTENTION, shy: bool = False, **options) -> None:
        super().__init__(*args, **options)
        self._at, self._shy = at, shy

    def trace(self, tokens: Sequence[int], width: int) -> Trace:
        before = list(self._cells)
        rows = self.rows(tokens, width)
        written, self._cells = self._cells[len(before) :], before
        kernel = self._kernel(width, len(before) + width)
        made = (self._operation(number, written, kernel, width) for number in range(len(OPERATIONS)))
        return Trace(tuple(made), tuple(rows[::-1] if self._shy else rows))

    def cells(self, since: int) -> tuple[CellsPart, ...]:
        return (CellsPart("layer 0 keys", _digest(self._cells[:since]), tuple(self._cells[since:])),)

    def _operation(self, number: int, written: Sequence[bytes], kernel: object, width: int) -> Operation:
        name, kind, weights = OPERATIONS[number]
        rows = tuple(_digest(number, cell, kernel if number >= self._at else 0) for cell in written)
        return Operation(name, kind, (64, width, 1, 1), _digest(rows), {1: rows}, weights, "q4_0" if weights else "f32")


def _digest(*parts: object) -> bytes:
    return hashlib.blake2b(repr(parts).encode(), digest_size=16).digest()


def reproduction(size: int = 300, width: int = 5, **more) -> Reproduction:
    """`size` ids, of which the last eight are an answer."""
    prefix = tuple(7 * i % 997 for i in range(size))
    given = {"plain": ForwardShape(STOCK, 1), "other": ForwardShape(STOCK, width), "prompt": size - 8}
    return Reproduction(model="m", prefix=prefix, **{**given, **more})


def diagnosed(probe, asked: Reproduction | None = None, *, seconds: float = 200) -> Diagnosis:
    """The diagnosis on `probe`, whatever the setting."""
    return Diagnosing(asked or reproduction(), lambda setting, deadline: probe, Deadline(seconds)).run()
