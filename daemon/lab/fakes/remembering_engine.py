"""A fake engine that keeps what its slots give up, and one whose slots are not apart, to try checks of both on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pilotfish.daemon.lab.fakes.fake_engine import FakeEngine, FakeSession
from pilotfish.hooks.types import ConversationTotals, SamplingParams, shared_prefix

CELL = 4  # bytes that a cell takes


class RememberingEngine(FakeEngine):
    """Remembers whole caches, the last one that was given up first. With `confused` what it writes back is spoilt."""

    def __init__(self, *, confused: bool = False, **options: Any) -> None:
        super().__init__(**options)
        self._confused = confused
        self._aside: list[list[int]] = []
        self._room: Callable[[int], int] = lambda held: 0
        self._hits = self._forgotten = 0

    def remember(self, room: Callable[[int], int]) -> None:
        self._room, self._aside, self._hits, self._forgotten = room, [], 0, 0

    @property
    def remembered(self) -> ConversationTotals:
        return ConversationTotals(len(self._aside), self._held, hits=self._hits, forgotten=self._forgotten)

    @property
    def _held(self) -> int:
        return CELL * sum(map(len, self._aside))

    def open(
        self, prompt: Sequence[int], sampling: SamplingParams, *, cache_prompt: bool = True, slot: int | None = None
    ) -> FakeSession:
        session = super().open(prompt, sampling, cache_prompt=cache_prompt, slot=slot)
        best = max(self._aside, key=lambda cells: shared_prefix(cells, prompt), default=[])
        kept = min(shared_prefix(best, prompt), len(prompt) - 1)
        if cache_prompt and kept > session.cached:
            self._hits += 1
            session.cached, session.cells = kept, list(prompt[:kept])
            if self._confused:
                session.forgotten = (kept,)
        return session

    def keep(self, slot_id: int, tokens: Sequence[int]) -> None:
        super().keep(slot_id, tokens)
        self._aside.append(list(tokens))
        while self._aside and self._held > self._room(self._held):
            del self._aside[0]
            self._forgotten += 1


class LeakyEngine(FakeEngine):
    """Its rows depend on how many sessions are open."""

    def candidates(self, history: Sequence[int], width: int, forgotten: Sequence[int] = ()) -> list[int]:
        return super().candidates(history, width, (*forgotten, self.open_sessions))
