"""Probes whose rows are not what they should be, around any sound one: `diagnose` and `certify` catch them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from pilotfish.hooks.errors import EngineError
from pilotfish.hooks.inspection import InspectsForwards, Trace
from pilotfish.hooks.protocols import Probe, ReadsLogits


class FaultyProbe:
    """`inner`, as it is."""

    def __init__(self, inner: Probe) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:  # `n_ctx`, `seconds`, `encode`, `clear`, ...
        return getattr(self.inner, name)

    def rows(self, tokens: Sequence[int], width: int) -> list[bytes]:
        return self.inner.rows(tokens, width)

    def logits(self, tokens: Sequence[int], width: int) -> bytes:
        if not isinstance(self.inner, ReadsLogits):
            raise EngineError("the probe inside does not give its rows away")
        return self.inner.logits(tokens, width)

    def trace(self, tokens: Sequence[int], width: int) -> Trace:
        if not isinstance(self.inner, InspectsForwards):
            raise EngineError("the probe inside cannot be looked into")
        return self.inner.trace(tokens, width)

    def cut(self, size: int) -> bool:
        return self.inner.cut(size)


class WidthSensitiveProbe(FaultyProbe):
    """Rows of forwards of one of `widths` have other bits, and so have, where it is traced, all operations from number
    `at` on."""

    def __init__(self, inner: Probe, widths: Collection[int], *, at: int = 0) -> None:
        super().__init__(inner)
        self._widths, self._at = frozenset(widths), at

    def rows(self, tokens: Sequence[int], width: int) -> list[bytes]:
        rows = super().rows(tokens, width)
        return [_other(row) for row in rows] if width in self._widths else rows

    def logits(self, tokens: Sequence[int], width: int) -> bytes:
        rows = super().logits(tokens, width)
        if width not in self._widths:
            return rows
        return np.nextafter(np.frombuffer(rows, np.float32), np.float32(np.inf)).tobytes()

    def trace(self, tokens: Sequence[int], width: int) -> Trace:
        trace = super().trace(tokens, width)
        if width not in self._widths:
            return trace
        spoilt = tuple(operation.with_digests(_other) for operation in trace.operations[self._at :])
        return Trace((*trace.operations[: self._at], *spoilt), tuple(map(_other, trace.rows)))


class CellKeepingProbe(FaultyProbe):
    """A cut leaves the first of the cells that should go."""

    def cut(self, size: int) -> bool:
        return self.inner.cut(size + 1)


class PeekingProbe(FaultyProbe):
    """Rows depend on what follows them in their block."""

    def rows(self, tokens: Sequence[int], width: int) -> list[bytes]:
        seen = b"".join(token.to_bytes(4, "little") for token in tokens[1:])
        rows = super().rows(tokens, width)
        return [_other(row, seen) for row in rows] if seen else rows


def _other(digest: bytes, seen: bytes = b"\xff") -> bytes:
    """Another digest, the same for the same `seen`."""
    return bytes(byte ^ (1 + sum(seen) % 0xFF) for byte in digest)
