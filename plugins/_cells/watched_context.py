"""A context that tells everything that was computed for a token, operation by operation, beside its row.

Rows of logits tell less than that. Engines round what they multiply with integer weights to 8 bits first, and that
swallows most differences in the last bits: with Q4_K_M on libllama forwards of 4 differ from single steps in a product
of every token, and hardly any row of a model of four blocks shows it. Rows of thirty do after a few tokens.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from pilotfish.hooks.errors import EngineError
from pilotfish.hooks.inspection import Operation
from pilotfish.plugins._cells.context import DIGEST_BYTES, CellContext, IdArray
from pilotfish.plugins._cells.forward_watch import ForwardWatch

_WIDTHS = (1, 2, 3)  # at which is learned what forwards compute: shapes differ in the tokens' axis alone
_CELLS = 300  # of another context, in which they compute more for every cell: engines count cells in steps of up to 256

Key = tuple[str, str, int]  # kind, name, and how many of these came before


class WatchedContext:
    """Stands for `context`, whose forwards `watch` sees: all else is the context's own. Empties it.

    Raises EngineError where forwards that are watched give other rows, or do not show what they compute.
    """

    def __init__(self, context: CellContext, watch: ForwardWatch) -> None:
        self._context, self._watch = context, watch
        self._operations: tuple[Operation, ...] = ()
        self._axes: dict[Key, int] = {}
        self._tokens: list[bytes] = []  # of the last forward, what was computed for each
        if context.max_width < max(_WIDTHS) or context.cells < _CELLS + max(_WIDTHS):
            raise EngineError(f"{context.name}: its context is too small to be looked into")
        for width in _WIDTHS:
            self._demand_sound(width)
        self._axes = self._learned()
        if not self._axes:
            raise EngineError(f"{context.name}: its forwards do not show what they compute")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def forward(self, tokens: Sequence[int] | IdArray, width: int) -> None:
        """As `CellContext.forward`."""
        self._watch.begin(width)
        try:
            self._context.forward(tokens, width)
            self._context.wait()
        finally:
            self._operations = self._watch.end()
        self._tokens = self._told(width)

    def step(self, token: int) -> None:
        """As `CellContext.step`."""
        self.forward([token], 1)

    def told(self, i: int) -> bytes:
        """As `CellContext.told`."""
        return self._tokens[i]

    def _demand_sound(self, width: int) -> None:
        """Whether a forward of `width` gives the same rows when it is watched."""
        ids = np.arange(width, dtype=np.int32)
        self._context.clear()
        self._context.forward(ids, width)
        expected = [self._context.row(i).copy() for i in range(width)]
        self._context.clear()
        self.forward(ids, width)
        same = all(np.array_equal(self._context.row(i), row) for i, row in enumerate(expected))
        self._context.clear()
        if not same:
            raise EngineError(f"{self._context.name}: a forward of {width} gives other rows when it is watched")

    def _learned(self) -> dict[Key, int]:
        """The axis along which the tokens of each operation lie, of those that forwards of every width have, as long as
        there in any context: what is computed for each cell differs in its length, and what is made of it counts."""
        shapes = [self._shapes(width) for width in _WIDTHS]
        for at in range(0, _CELLS, self._context.block):
            self._context.feed(np.zeros(min(self._context.block, _CELLS - at), np.int32))
        later = self._shapes(_WIDTHS[0])
        found: dict[Key, int] = {}
        for key, shape in shapes[0].items():
            if all(key in others for others in shapes) and later.get(key) == shape:
                lengths = list(zip(*(others[key] for others in shapes), strict=False))
                differing = [axis for axis, along in enumerate(lengths) if len(set(along)) > 1]
                if len(differing) == 1 and lengths[differing[0]] == _WIDTHS:
                    found[key] = differing[0]
        return found

    def _shapes(self, width: int) -> dict[Key, tuple[int, ...]]:
        """Of the operations of a forward of `width`. Clears the cells."""
        self.forward(np.arange(width, dtype=np.int32), width)
        self._context.clear()
        return {key: one.shape for key, one in _numbered(self._operations) if one.slices}

    def _told(self, width: int) -> list[bytes]:
        """For each token the digests of its part of every operation, in the order in which they were learned."""
        seen = dict(_numbered(self._operations))
        digests = [hashlib.blake2b(digest_size=DIGEST_BYTES) for _ in range(width)]
        for key, axis in self._axes.items():
            slices = seen[key].slices.get(axis) if key in seen else None
            for i, digest in enumerate(digests):
                digest.update(slices[i] if slices else b"none")
        return [digest.digest() for digest in digests]


def _numbered(operations: Sequence[Operation]) -> Iterator[tuple[Key, Operation]]:
    before: Counter[tuple[str, str]] = Counter()
    for one in operations:
        yield (*one.key, before[one.key]), one
        before[one.key] += 1
