"""One sequence of an mlx-lm model: forwards at the end of its caches, and taking their tokens back.

MLX computes when it is asked to, so every forward here ends with an evaluation of its rows and of its caches: nothing
is left over for another thread, to which MLX's streams would not belong.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import mlx.core as mx
import numpy as np
from mlx_lm.models.cache import ArraysCache

from pilotfish.hooks.errors import EngineError
from pilotfish.plugins._cells.cell_memory import MARKS
from pilotfish.plugins._cells.context import Bytes, CellContext, IdArray, Logits
from pilotfish.plugins._mlx import caches as parts
from pilotfish.plugins._mlx.attention import Attention
from pilotfish.plugins._mlx.cell_copy import copy_of, put_copy
from pilotfish.plugins._mlx.window_cache import WindowCache

States = list[list[Any]]


class MLXContext(CellContext):
    """`make` gives empty caches. Raises EngineError as `CellContext` says, whatever MLX or a model's code raises."""

    def __init__(
        self, model: Any, name: str, make: Any, attention: Attention, device: Any, *, cells: int, n_vocab: int,
        block: int, max_width: int,
    ) -> None:  # fmt: skip
        super().__init__(name, handle=self, cells=cells, n_vocab=n_vocab, block=block, max_width=max_width)
        self._model, self._make, self._attention, self._device = model, make, attention, device
        self._caches: list[Any] = make()
        self.memory = parts.memory_of(self._caches, cells)
        self.obstacle = parts.obstacle_of(self._caches)
        self._rows: Logits = np.empty((0, n_vocab), np.float32)
        self._marks: dict[int, States] = {}
        self._before: States | None = None  # the running states before the last block,
        self._began = -1  # which began with so many cells; negative where nothing leads back there
        self._went_back = float("inf")  # seconds, at the least

    def feed(self, tokens: Sequence[int] | IdArray) -> None:
        with self._computing():
            self._forwarded(tokens)  # rows that nobody evaluates are not computed
            mx.eval(parts.arrays_of(self._caches))
        self.forwarded(len(tokens), 0)

    def forward(self, tokens: Sequence[int] | IdArray, width: int) -> None:
        if width > 1 and self.memory.restores:
            self._before, self._began = parts.copied_states(self._caches), self.size
        self.forward_again(tokens, width)

    def forward_again(self, tokens: Sequence[int] | IdArray, width: int) -> None:
        ids = [int(token) for token in tokens]
        self._compute([*ids, *[ids[-1]] * (width - len(ids))])

    def step(self, token: int) -> None:
        self._compute([token])

    def _compute(self, tokens: list[int]) -> None:
        with self._computing():
            rows = self._forwarded(tokens)[0].astype(mx.float32)
            mx.eval(rows, parts.arrays_of(self._caches))
            self._rows = np.asarray(rows)  # where memory is shared, no copy
        self.forwarded(len(tokens), 0)

    def _forwarded(self, tokens: Sequence[int] | IdArray) -> Any:
        with self._attention:
            return self._model(mx.array(np.asarray(tokens, np.int32)[None]), cache=self._caches)

    @contextmanager
    def _computing(self) -> Iterator[None]:
        try:
            with mx.stream(self._device):
                yield
        except Exception as error:  # MLX and the models' code raise nothing narrower
            what = f"{type(error).__name__}: {error}"
            raise EngineError(f"{self.name}: a forward failed in MLX: {what}; repeat the request") from error

    def row(self, i: int) -> Logits:
        found: Logits = self._rows[i]
        return found

    def wait(self) -> None:
        """Nothing to do: whatever is forwarded is computed at once."""

    def mark(self) -> tuple[int, ...]:
        if not self.memory.running:
            return ()
        self._marks.pop(self.size, None)
        self._marks[self.size] = parts.copied_states(self._caches)
        for old in sorted(self._marks)[:-MARKS]:
            del self._marks[old]
        return tuple(sorted(self._marks))

    @property
    def going_back(self) -> float | None:
        return self._went_back if self.memory.restores else None

    def _remove(self, size: int) -> bool:
        if self.obstacle:
            return False
        if not self.memory.running:
            return self._cut(size)
        if self._before is not None and size == self._began == self.size - self.last:
            return self._go_back(size, self._before)
        return size in self._marks and self._go_back(size, self._marks[size])

    def _cut(self, size: int) -> bool:
        """The tails of all caches that have cells."""
        cached = list(parts.leaves(self._caches))
        if not all(cache.can_cut(size) for cache in cached if isinstance(cache, WindowCache)):
            return False
        for cache in cached:
            if type(cache) is not ArraysCache and cache.trim(self.size - size) != self.size - size:
                raise EngineError(f"{self.name}: its cache holds less than {self.size} tokens; repeat the request")
        return True

    def _go_back(self, size: int, states: States) -> bool:
        started, self._began = time.perf_counter(), -1  # another history may have a forward from there, too
        parts.put_states(self._caches, states)
        self._marks = {at: states for at, states in self._marks.items() if at <= size}
        done = self._cut(size)
        self._went_back = min(self._went_back, time.perf_counter() - started)
        return done

    def _remove_all(self) -> None:
        self._caches = self._make()
        self._marks, self._before, self._began = {}, None, -1

    @property
    def can_shift(self) -> bool:
        return False

    def _shift(self, keep: int, discard: int) -> bool:
        return False

    def _state_size(self) -> int:
        return copy_of(self._caches).size if self.size else 0

    def _read_state(self, data: Bytes) -> int:
        with self._computing():
            return copy_of(self._caches).write(data) if self.size else 0

    def _write_state(self, data: Bytes) -> bool:
        with self._computing():
            whole = not data.nbytes or put_copy(self._caches, data)
            mx.eval(parts.arrays_of(self._caches))
        return whole

    def _last_words(self) -> str:
        return "MLX said nothing"

    def close(self) -> None:
        """Let the caches go."""
        self._caches, self._marks, self._before = [], {}, None
        self._rows = np.empty((0, self.n_vocab), np.float32)
