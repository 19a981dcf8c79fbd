"""A drafter for several answers at a time: it knows what each prompt's answer is, and how wrong to be about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pilotfish.daemon.registry.plugin_sources import PluginSource
from pilotfish.hooks.drafting import HistoryDrafter, HistorySession
from pilotfish.hooks.protocols import DrafterFactory, DraftSession
from pilotfish.hooks.specs import hookimpl
from pilotfish.hooks.types import EMPTY, Placement, Proposal, TargetPin

NAME = "replays"


@dataclass(frozen=True, slots=True)
class Replay:
    """The answer to a prompt as it is proposed: every n-th token wrong where `wrong_every` is n and not 0.

    `lengths` are how long proposals are at most, by the place in the answer, over and over; empty: as long as may be.
    """

    tokens: Sequence[int]
    wrong_every: int = 0
    lengths: Sequence[int] = ()

    def propose(self, at: int, k: int, n_vocab: int) -> tuple[int, ...]:
        """At most `k` ids from place `at` of the answer on."""
        if self.lengths:
            k = min(k, self.lengths[at % len(self.lengths)])
        every = self.wrong_every
        return tuple(
            (token + 1) % n_vocab if every and (place + 1) % every == 0 else token
            for place, token in enumerate(self.tokens[at : at + k], at)
        )


class Replays(HistoryDrafter):
    """Sessions are told apart by their prompts; without a replay for its prompt, one proposes nothing."""

    name = NAME
    placement = Placement.INLINE
    sessions = 64

    def __init__(self) -> None:
        super().__init__()
        self._known: dict[tuple[int, ...], Replay] = {}

    def know(self, replays: Mapping[tuple[int, ...], Replay]) -> None:
        """Propose these from the next session on, by prompt; what was known before is forgotten."""
        self._known = dict(replays)

    def open(self, target: TargetPin, prompt: Sequence[int]) -> DraftSession:
        return _ReplaySession(self, self._known.get(tuple(prompt)), target.tokenizer.n_vocab, prompt)

    def source(self) -> PluginSource:
        """A plugin that registers this one drafter."""
        return PluginSource(NAME, "built-in", __name__, lambda: _Plugin(self))


class _ReplaySession(HistorySession):
    def __init__(self, drafter: Replays, replay: Replay | None, n_vocab: int, prompt: Sequence[int]) -> None:
        super().__init__(drafter, prompt)
        self._replay, self._n_vocab, self._prompt = replay, n_vocab, len(prompt)

    def propose(self, k: int) -> Proposal:
        if self._replay is None:
            return EMPTY
        tokens = self._replay.propose(len(self.history) - self._prompt, k, self._n_vocab)
        return Proposal(tokens, (1.0,) * len(tokens)) if tokens else EMPTY


class _Plugin:
    def __init__(self, replays: Replays) -> None:
        self._replays = replays

    @hookimpl
    def pilotfish_register_drafters(self, register: Callable[[str, DrafterFactory], None]) -> None:
        register(NAME, lambda table: self._replays)
