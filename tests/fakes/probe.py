"""A scriptable probe: which widths agree, where the engine switches kernels, and what forwards cost."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

import numpy as np

from pilotfish.daemon.lab.fakes.fake_clock import FakeClock
from pilotfish.hooks.errors import EngineError
from pilotfish.hooks.types import EnginePin, JointStep

Kernel = Callable[[int, int], object]  # (width, cells after the forward) -> whatever decides the bits of its rows


def one_kernel(width: int, cells: int) -> object:
    """Every forward computes alike."""
    return 0


class FakeProbe:
    """A row is a hash of the ids before it and of the kernel that computes it.

    With `sticky` cells remember the kernel that wrote them; with `peeks` a row also depends on what follows it in its
    block. `cost(width)` is what a forward takes on `clock`, `prefill` a prompt token. Logits of two probes differ by
    noise of `apart`; `shift` cuts text into other tokens. Requests at once share a forward that takes `joint` times
    what a step of one does (None: they take turns), and which changes no row if `joins`.
    """

    def __init__(
        self,
        kernel: Kernel = one_kernel,
        *,
        setting: str = "",
        n_vocab: int = 1000,
        n_ctx: int = 1024,
        obstacle: str = "",
        sticky: bool = False,
        peeks: bool = False,
        clock: FakeClock | None = None,
        cost: Callable[[int], float] = lambda width: 0.005 + 0.001 * width,
        prefill: float = 0.001,
        apart: float = 0.0,
        shift: int = 0,
        joint: float | None = None,
        joins: bool = True,
        prompts_apart: bool = False,
    ) -> None:
        self.engine = EnginePin("fake", "1", "fake-fingerprint")
        self._apart, self._shift = apart, shift
        self.n_ctx, self.n_vocab, self.obstacle = n_ctx, n_vocab, obstacle
        self._joint, self._joins, self.prompts_apart = joint, joins, prompts_apart
        self.seconds = 0.0
        self.closed = False
        self.forwards: list[tuple[int, int]] = []  # (width, cells before)
        self._kernel, self._setting, self._sticky, self._peeks = kernel, setting, sticky, peeks
        self._clock, self._cost, self._prefill = clock or FakeClock(), cost, prefill
        self._cells: list[bytes] = []  # each a hash of all ids up to it

    def encode(self, text: str) -> list[int]:
        return [(ord(letter) + self._shift) % self.n_vocab for letter in text]

    def feed(self, tokens: Sequence[int]) -> None:
        self._write(tokens, len(tokens))
        self._took(self._prefill * len(tokens))

    def rows(self, tokens: Sequence[int], width: int) -> list[bytes]:
        before = len(self._cells)
        kernel = self._kernel(width, before + width)
        self.forwards.append((width, before))
        self._write(tokens, width)
        self._took(self._cost(width))
        later = tuple(tokens) if self._peeks else ()
        return [self._digest(before + i + 1, kernel, later) for i in range(len(tokens))]

    def logits(self, tokens: Sequence[int], width: int) -> bytes:
        before = len(self._cells)
        self._write(tokens, width)
        self._took(self._cost(width))
        return b"".join(self._row(self._cells[before + i]).tobytes() for i in range(len(tokens)))

    def together(self, sequences: int, *, exact: bool) -> JointStep | None:
        alone = self._cost(1)
        self._took((self._joint or 1.0) * alone)
        able = self._joint is not None and (self._joins or not exact)
        return JointStep(sequences, (self._joint or 1.0) * alone, alone) if able else None

    def _row(self, cell: bytes) -> np.ndarray:
        random = np.random.default_rng(int.from_bytes(cell[:8], "big"))
        row, noise = random.normal(0, 3, self.n_vocab), random.normal(0, 1, self.n_vocab)
        return (row + self._apart * noise).astype(np.float32)

    def _write(self, tokens: Sequence[int], width: int) -> None:
        if len(self._cells) + width > self.n_ctx:
            raise EngineError("the fake cache is full")
        mark = self._kernel(width, len(self._cells) + width) if self._sticky else 0
        for token in [*tokens, *[tokens[-1]] * (width - len(tokens))]:
            self._cells.append(_hash(self._cells[-1] if self._cells else b"", token, mark))

    def _digest(self, cells: int, kernel: object, later: object) -> bytes:
        return _hash(self._cells[cells - 1], self._setting, kernel, later)

    def _took(self, seconds: float) -> None:
        self.seconds = seconds
        self._clock.advance(seconds)

    def cut(self, size: int) -> bool:
        if self.obstacle:
            return False
        del self._cells[size:]
        return True

    def clear(self) -> None:
        self._cells.clear()

    def close(self) -> None:
        self.closed = True


def _hash(*parts: object) -> bytes:
    return hashlib.blake2b(repr(parts).encode(), digest_size=16).digest()
