"""A drafter that knows the answer, as a plugin file: the benchmark's ceiling, and its worst cases.

The benchmark copies this file into a plugin folder of the runners that need it. Its table: `recording` is a JSON file
`{"tokens": [...]}` with the output expected after the next request's prompt, read when a session opens; from output
position `wrong_from` on (-1: never) every proposed id is wrong, with `wrong_every` n every n-th; `delay_ms` makes each
proposal take that long. It always claims to be certain.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pilotfish.hooks.history import History
from pilotfish.hooks.protocols import DrafterFactory, DraftSession
from pilotfish.hooks.specs import hookimpl
from pilotfish.hooks.types import EMPTY, Ack, Placement, Proposal, TargetPin

NAME = "replay"


class ReplaySession:
    """Where the recording stands. Once the history differs from it, nothing is proposed any more."""

    def __init__(self, drafter: ReplayDrafter, tokens: tuple[int, ...], prompt: Sequence[int], n_vocab: int) -> None:
        self._drafter = drafter
        self._tokens = tokens
        self._n_vocab = n_vocab
        self._history = History(prompt)
        self._n_prompt = len(self._history)
        self._on_track = True

    def propose(self, k: int) -> Proposal:
        if self._drafter.delay:
            time.sleep(self._drafter.delay)
        start = len(self._history) - self._n_prompt
        expected = self._tokens[start : start + k] if self._on_track else ()
        if not expected:
            return EMPTY
        tokens = (
            (token + 1) % self._n_vocab if self._drafter.wrong_at(at) else token
            for at, token in enumerate(expected, start)
        )
        return Proposal(tuple(tokens), (1.0,) * len(expected))

    def commit(self, tokens: Sequence[int]) -> Ack:
        start = len(self._history) - self._n_prompt
        self._on_track &= tuple(tokens) == self._tokens[start : start + len(tokens)]
        return self._history.commit(tokens)

    def rollback(self) -> Ack:
        return self._history.ack()

    def close(self) -> None:
        pass


class ReplayDrafter:
    """See the module's docstring. A recording that is missing or no JSON gives empty proposals."""

    name = NAME

    def __init__(self, table: Mapping[str, Any]) -> None:
        self._recording = Path(table["recording"])
        self._wrong_from = int(table.get("wrong_from", -1))
        self._wrong_every = int(table.get("wrong_every", 0))
        self.delay = float(table.get("delay_ms", 0)) / 1000  # seconds
        self.placement = Placement.THREAD if self.delay else Placement.INLINE

    def wrong_at(self, position: int) -> bool:
        """Whether the id proposed for an output position is to be a wrong one."""
        every = self._wrong_every
        return 0 <= self._wrong_from <= position or (every > 0 and (position + 1) % every == 0)

    def open(self, target: TargetPin, prompt: Sequence[int]) -> DraftSession:
        try:
            tokens = tuple(json.loads(self._recording.read_bytes())["tokens"])
        except (OSError, ValueError, KeyError):
            tokens = ()
        return ReplaySession(self, tokens, prompt, target.tokenizer.n_vocab)


@hookimpl
def pilotfish_register_drafters(register: Callable[[str, DrafterFactory], None]) -> None:
    register(NAME, ReplayDrafter)
