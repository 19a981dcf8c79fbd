"""Drafters that do what a test tells them to."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

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
