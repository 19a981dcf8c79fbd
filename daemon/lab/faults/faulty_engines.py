"""Engines that change tokens, around any sound one: `pilotfish parity` and `conformance` catch both.

What the caller commits is acknowledged truthfully, as a faulty engine does: nothing but its tokens gives it away. The
engine inside is told another history than the caller where the fault wants that, in a new session of its own; requests
with a seed begin to draw anew there. One session at a time, as in an engine without slots.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from pilotfish.hooks.history import History
from pilotfish.hooks.protocols import Rows, TargetEngine, TargetSession
from pilotfish.hooks.types import Ack, SamplingParams, TokenLogprob


class FaultyEngine:
    """`inner` with a fault, which subclasses put in."""

    def __init__(self, inner: TargetEngine) -> None:
        self.inner = inner
        self.lane, self.engine, self.tokenizer = inner.lane, inner.engine, inner.tokenizer
        self.n_ctx, self.n_vocab, self.eog = inner.n_ctx, inner.n_vocab, inner.eog

    def open(self, prompt: Sequence[int], sampling: SamplingParams, *, cache_prompt: bool = True) -> FaultySession:
        return FaultySession(self, prompt, sampling, cache_prompt)

    def close(self) -> None:
        self.inner.close()

    def picked(self, token: int, width: int, proposal: int | None) -> int:
        """What is answered in the place of `token` in a forward of `width` tokens; never `proposal` where the engine
        rejects that, since it has no row to follow."""
        return token

    def kept(self, committed: Sequence[int], proposals: Sequence[int]) -> list[int]:
        """What the cache takes for `committed`, after a forward of `proposals`."""
        return list(committed)


class WidthSensitiveEngine(FaultyEngine):
    """Forwards of one of `widths` answer another id instead of the right one."""

    def __init__(self, inner: TargetEngine, widths: Collection[int]) -> None:
        super().__init__(inner)
        self._widths = frozenset(widths)

    def picked(self, token: int, width: int, proposal: int | None) -> int:
        if width not in self._widths:
            return token
        others = ((token + step) % self.n_vocab for step in (1, 2))
        return next(other for other in others if other != proposal)


class CellKeepingEngine(FaultyEngine):
    """The cell of the first proposal that is rejected stays in the cache."""

    def kept(self, committed: Sequence[int], proposals: Sequence[int]) -> list[int]:
        at = len(committed) - 1  # the correction's place
        rejected = [proposals[at]] if at < len(proposals) and proposals[at] != committed[at] else []
        return [*committed[:-1], *rejected, committed[-1]]


class FaultySession:
    """A session of a FaultyEngine."""

    def __init__(
        self, engine: FaultyEngine, prompt: Sequence[int], sampling: SamplingParams, cache_prompt: bool
    ) -> None:
        self._engine, self._sampling = engine, sampling
        self._history, self._inside = History(prompt), History(prompt)
        self._session: TargetSession = engine.inner.open(prompt, sampling, cache_prompt=cache_prompt)
        self._rows: FaultyRows | None = None

    @property
    def cached(self) -> int:
        return self._session.cached

    def prefill(self) -> int:
        return self._session.prefill()

    def verify(self, proposals: Sequence[int]) -> FaultyRows:
        width = self._engine.lane.pad(1 + len(proposals))
        rows = self._session.verify(proposals)
        self._rows = FaultyRows(rows, self._engine, width, tuple(proposals))
        return self._rows

    def commit(self, tokens: Sequence[int]) -> Ack:
        rows, self._rows = self._rows, None
        inside = self._engine.kept(tokens, rows.proposals if rows else ())
        if rows is None or (inside == list(tokens) and not rows.changed):
            self._session.commit(tokens)  # which refuses it out of turn
            self._inside.commit(tokens)
        else:
            self._inside.commit(inside)
            self._begin_anew()
        return self._history.commit(tokens)

    def rollback(self) -> Ack:
        self._rows = None
        self._session.rollback()
        return self._history.ack()

    def close(self) -> None:
        self._session.close()

    def _begin_anew(self) -> None:
        self._session.rollback()
        self._session.close()
        self._session = self._engine.inner.open(self._inside.tokens.tolist(), self._sampling)
        while self._session.prefill():
            pass


class FaultyRows:
    """Rows of one forward; `changed` once a pick was another than the engine's."""

    def __init__(self, rows: Rows, engine: FaultyEngine, width: int, proposals: tuple[int, ...]) -> None:
        self.changed = False
        self.proposals = proposals
        self._rows, self._engine, self._width = rows, engine, width

    def __len__(self) -> int:
        return len(self._rows)

    def pick(self, i: int) -> int:
        token = self._rows.pick(i)
        proposal = self.proposals[i] if i < len(self.proposals) else None
        said = self._engine.picked(token, self._width, proposal)
        self.changed = self.changed or said != token
        return said

    def logprobs(self, i: int, token: int, n: int) -> TokenLogprob:
        return self._rows.logprobs(i, token, n)
