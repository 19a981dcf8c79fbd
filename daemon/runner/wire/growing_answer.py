"""The answer to one prompt while it grows, and what is known of it when it is done."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from pilotfish.daemon.core.generation import GenerationRequest, Outcome, OutputToken, StopType, Timings
from pilotfish.daemon.core.output_text import incomplete_tail
from pilotfish.hooks.protocols import Tokenizer
from pilotfish.hooks.types import TokenLogprob


@dataclass(frozen=True, slots=True)
class AnswerChunk:
    """One streamed chunk: usually one token. Tokens that end inside a character ride with the one that ends it."""

    tokens: tuple[int, ...]
    text: str
    drafted: bool
    logprobs: tuple[TokenLogprob, ...]
    predicted: int  # tokens predicted so far, this chunk's included
    timings: Timings | None = None


@dataclass(slots=True)
class Answer:
    """What was emitted for one prompt so far. `index` is its place among the prompts of the request."""

    request: GenerationRequest
    tokenizer: Tokenizer
    index: int = 0
    tokens: list[int] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    outcome: Outcome | None = None  # set when it is done
    _started: float = field(default_factory=time.perf_counter)
    _first: float | None = None
    _held: list[OutputToken] = field(default_factory=list)
    _character: bytes = b""  # the bytes of a character that is not whole yet

    @property
    def text(self) -> str:
        return "".join(self.texts)

    def add(self, output_tokens: Sequence[OutputToken], *, timings: bool = False) -> list[AnswerChunk]:
        """Take a batch in and cut it into chunks as stock does: none ends inside a character."""
        if self._first is None and output_tokens:
            self._first = time.perf_counter()
        chunks = []
        for output_token in output_tokens:
            self.tokens.append(output_token.token)
            self.texts.append(output_token.text)
            if output_token.logprob is not None:
                self.logprobs.append(output_token.logprob)
            self._held.append(output_token)
            if not self._inside_character(output_token):
                chunks.append(self._release(timings))
        return chunks

    def release_held(self) -> tuple[int, ...]:
        """Tokens of a last character that never became whole."""
        held, self._held = tuple(e.token for e in self._held), []
        return held

    def _inside_character(self, output_token: OutputToken) -> bool:
        if output_token.text:
            self._character = b""
            return False
        self._character += self.tokenizer.piece(output_token.token)
        return incomplete_tail(self._character) > 0

    def _release(self, timings: bool) -> AnswerChunk:
        held, self._held = self._held, []
        return AnswerChunk(
            tokens=tuple(e.token for e in held),
            text=held[-1].text,
            drafted=held[-1].drafted,
            logprobs=tuple(e.logprob for e in held if e.logprob is not None),
            predicted=len(self.tokens),
            timings=self._timings_so_far() if timings else None,
        )

    def _timings_so_far(self) -> Timings:
        """As seen from here: the engine tells the exact ones, and what came from the cache, only at the end."""
        first = self._first or self._started
        return Timings(
            prompt_n=len(self.request.prompt),
            prompt_ms=1000 * (first - self._started),
            predicted_n=len(self.tokens),
            predicted_ms=1000 * (time.perf_counter() - first),
        )


def empty_outcome(request: GenerationRequest) -> Outcome:
    """How stock answers an empty prompt: at once, with nothing."""
    return Outcome(StopType.NONE, replace(Timings(), prompt_n=len(request.prompt)))
