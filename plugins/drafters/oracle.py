"""Replays a recorded output: the ceiling of a lane in the lab, acceptance at will in tests.

Its table: `tokens` is the whole output expected after the prompt. A wrong id is proposed at the output positions in
`wrong_at` (0 is the first token after the prompt) and, with `wrong_every = n`, at every n-th token. `delay_ms` makes
each proposal take that long.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pilotfish.hooks.history import History
from pilotfish.hooks.protocols import DrafterFactory, DraftSession
from pilotfish.hooks.specs import hookimpl
from pilotfish.hooks.types import EMPTY, Ack, Placement, Proposal, TargetPin
from pilotfish.plugins._options import DrafterTable


class Recording:
    """The expected output, with the positions at which the oracle is to be wrong."""

    def __init__(self, tokens: tuple[int, ...], wrong_at: frozenset[int], wrong_every: int) -> None:
        self.tokens = tokens
        self._wrong_at = wrong_at
        self._wrong_every = wrong_every

    def propose(self, start: int, k: int, n_vocab: int) -> tuple[int, ...]:
        """The ids from output position `start` on, the wrong ones replaced by their successor in the vocabulary."""
        return tuple(
            (token + 1) % n_vocab if self._is_wrong(position) else token
            for position, token in enumerate(self.tokens[start : start + k], start)
        )

    def _is_wrong(self, position: int) -> bool:
        every = self._wrong_every
        return position in self._wrong_at or (every > 0 and (position + 1) % every == 0)


class OracleSession:
    """Where the recording stands. Once the history differs from it, nothing is proposed any more."""

    def __init__(self, recording: Recording, n_vocab: int, delay: float, prompt: Sequence[int]) -> None:
        self._recording = recording
        self._n_vocab = n_vocab
        self._delay = delay  # seconds
        self._history = History(prompt)
        self._n_prompt = len(self._history)
        self._on_track = True

    def propose(self, k: int) -> Proposal:
        if self._delay:
            time.sleep(self._delay)
        if not self._on_track:
            return EMPTY
        tokens = self._recording.propose(len(self._history) - self._n_prompt, k, self._n_vocab)
        return Proposal(tokens, (1.0,) * len(tokens)) if tokens else EMPTY

    def commit(self, tokens: Sequence[int]) -> Ack:
        start = len(self._history) - self._n_prompt
        self._on_track &= tuple(tokens) == self._recording.tokens[start : start + len(tokens)]
        return self._history.commit(tokens)

    def rollback(self) -> Ack:
        return self._history.ack()

    def close(self) -> None:
        pass


class OracleDrafter:
    """Knows the answer; see the module's docstring."""

    name = "oracle"

    def __init__(self, config: Mapping[str, Any] | None = None) -> None:
        options = DrafterTable("oracle", config, ("tokens", "wrong_at", "wrong_every", "delay_ms"))
        self._recording = Recording(
            options.integers("tokens"),
            frozenset(options.integers("wrong_at")),
            options.integer("wrong_every", 0, 0, 1 << 31),
        )
        self._delay = options.number("delay_ms", 0, 0, 60_000) / 1000
        self.placement = Placement.THREAD if self._delay else Placement.INLINE

    def open(self, target: TargetPin, prompt: Sequence[int]) -> DraftSession:
        return OracleSession(self._recording, target.tokenizer.n_vocab, self._delay, prompt)


@hookimpl
def pilotfish_register_drafters(register: Callable[[str, DrafterFactory], None]) -> None:
    register(OracleDrafter.name, OracleDrafter)
