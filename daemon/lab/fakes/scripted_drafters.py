"""Drafters that do what a test tells them to."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from pilotfish.hooks.errors import ProtocolViolation
from pilotfish.hooks.hidden import HiddenStates
from pilotfish.hooks.history import History
from pilotfish.hooks.types import Ack, Placement, Proposal, TargetPin


class ScriptedDrafter:
    """Calls `script(history, k)` for each proposal; records what it was given.

    `fail(what)` is called before every operation (`open`, `propose`, `commit`, `rollback`, `close`) and may raise.
    """

    def __init__(
        self,
        script: Callable[[Sequence[int], int], Sequence[int]] = lambda history, k: (),
        *,
        name: str = "scripted",
        placement: Placement = Placement.INLINE,
        confidence: float = 0.9,
        fail: Callable[[str], None] = lambda what: None,
    ) -> None:
        self.name = name
        self.placement = placement
        self.script = script
        self.confidence = confidence
        self.fail = fail
        self.sessions: list[ScriptedSession] = []

    def open(self, target: TargetPin, prompt: Sequence[int]) -> ScriptedSession:
        self.fail("open")
        session = ScriptedSession(self, prompt)
        self.sessions.append(session)
        return session


class ScriptedSession:
    def __init__(self, drafter: ScriptedDrafter, prompt: Sequence[int]) -> None:
        self.history = History(prompt)
        self.commits: list[list[int]] = []
        self.closed = 0
        self._drafter = drafter

    def propose(self, k: int) -> Proposal:
        self._drafter.fail("propose")
        tokens = tuple(self._drafter.script(list(self.history.tokens), k))
        return Proposal(tokens, (self._drafter.confidence,) * len(tokens))

    def commit(self, tokens: Sequence[int]) -> Ack:
        self._drafter.fail("commit")
        self.commits.append(list(tokens))
        return self.history.commit(tokens)

    def rollback(self) -> Ack:
        self._drafter.fail("rollback")
        return self.history.ack()

    def close(self) -> None:
        self.closed += 1
        self._drafter.fail("close")


class NoisyDrafter(ScriptedDrafter):
    """Proposes what `truth(history)` says, token by token, but wrong with probability `wrong`."""

    def __init__(self, truth: Callable[[Sequence[int]], int], *, wrong: float, n_vocab: int, seed: int = 0) -> None:
        rng = random.Random(seed)

        def guess(history: Sequence[int], k: int) -> list[int]:
            out: list[int] = []
            for _ in range(rng.randint(0, k)):
                token = truth([*history, *out])
                out.append(rng.randrange(n_vocab) if rng.random() < wrong else token)
            return out

        super().__init__(guess, name="noisy")


class HiddenDrafter(ScriptedDrafter):
    """Asks for activations of `hidden_layers`, and records what each session was given."""

    def __init__(
        self,
        script: Callable[[Sequence[int], int], Sequence[int]] = lambda history, k: (),
        *,
        hidden_layers: Sequence[int] = (0, 2),
        placement: Placement = Placement.INLINE,
    ) -> None:
        super().__init__(script, name="hidden", placement=placement)
        self.hidden_layers = hidden_layers

    def open(self, target: TargetPin, prompt: Sequence[int]) -> HiddenSession:
        session = HiddenSession(self, prompt)
        self.sessions.append(session)
        return session


class HiddenSession(ScriptedSession):
    """A session that takes activations; proposing without those of the whole history but its last token is an error."""

    def __init__(self, drafter: ScriptedDrafter, prompt: Sequence[int]) -> None:
        super().__init__(drafter, prompt)
        self.states: list[HiddenStates] = []

    def take_hidden(self, states: HiddenStates) -> None:
        if self.states and states.first < self.states[-1].end:
            raise ProtocolViolation(f"activations from position {states.first} on came twice")
        self.states.append(states)

    def propose(self, k: int) -> Proposal:
        end = self.states[-1].end if self.states else 0
        if end != len(self.history.tokens) - 1:
            raise ProtocolViolation(f"activations end at {end}, the history at {len(self.history.tokens)}")
        return super().propose(k)
