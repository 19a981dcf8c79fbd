"""Sessions with a server that continues text: the history is bytes, and so is what is suggested."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from pilotfish.hooks.history import History
from pilotfish.hooks.types import EMPTY, Ack, Proposal
from pilotfish.plugins.drafters._remote.breaker import Breaker
from pilotfish.plugins.drafters._remote.http import ErrorStatus

log = logging.getLogger("pilotfish.drafters")

SUGGESTION = 64  # bytes asked for at least: what was right and not proposed yet needs no second question
BYTES_PER_TOKEN = 3  # of ordinary text it is four; asking for a token too many is cheap
_UNKNOWN = "\N{REPLACEMENT CHARACTER}"

T = TypeVar("T")


class Continue(Protocol):
    """Asks for a continuation of `prompt + written`, of about `tokens` of the server's tokens."""

    def __call__(self, prompt: str, written: str, tokens: int) -> str: ...


class Asking:
    """A session's questions: none while the server rests, none any more once it refused one of this session."""

    def __init__(self, breaker: Breaker) -> None:
        self._breaker = breaker
        self._refused = False

    def __call__(self, question: Callable[[], T]) -> T | None:
        """The answer, or None for "not now". Raises what the question raises."""
        if self._refused or not self._breaker.attempt():
            return None
        try:
            answer = question()
        except ErrorStatus as refusal:
            if refusal.status not in (400, 413, 422):
                self._breaker.failed(refusal)
                raise
            log.warning("%s; nothing more is asked for this request", refusal)
            self._refused = True
            answer = None
        except Exception as error:
            self._breaker.failed(error)
            raise
        self._breaker.succeeded()
        return answer


class TextSession:
    """The history as bytes. Nothing is asked while it ends within a character, or once it exceeds `max_bytes`."""

    def __init__(
        self, continue_: Continue, prompt: Sequence[int], breaker: Breaker, *, max_bytes: int | None = None
    ) -> None:
        self._continue = continue_
        self._history = History(prompt)
        self._prompt = len(prompt)
        self._asking = Asking(breaker)
        self._max_bytes = max_bytes
        self._ahead = b""  # suggested, and in line with everything committed since

    def propose(self, k: int) -> Proposal:
        if k <= 0:
            return EMPTY
        if not self._ahead:
            self._ahead = self._suggestion(k)
        return Proposal(tuple(_whole(self._ahead[:k])))

    def commit(self, tokens: Sequence[int]) -> Ack:
        ack = self._history.commit(tokens)
        added = bytes(list(tokens))
        self._ahead = self._ahead[len(added) :] if self._ahead.startswith(added) else b""
        return ack

    def rollback(self) -> Ack:
        return self._history.ack()

    def close(self) -> None:
        pass

    def _suggestion(self, k: int) -> bytes:
        if self._max_bytes is not None and len(self._history) > self._max_bytes:
            return b""
        committed = bytes(list(self._history.tokens))  # of the ids, not of the array's memory
        try:
            prompt, written = committed[: self._prompt].decode(), committed[self._prompt :].decode()
        except UnicodeDecodeError:
            return b""
        tokens = -(-max(k, SUGGESTION) // BYTES_PER_TOKEN)
        text = self._asking(lambda: self._continue(prompt, written, tokens)) or ""
        return text.partition(_UNKNOWN)[0].encode("utf-8", "ignore")


def _whole(data: bytes) -> bytes:
    """Without the beginning of a character that was cut."""
    return data.decode("utf-8", "ignore").encode()
