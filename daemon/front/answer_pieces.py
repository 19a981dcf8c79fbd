"""From a rendered prompt to the pieces of an answer, as the runner sends them."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pilotfish.daemon.front.durations import nanoseconds
from pilotfish.daemon.front.options import Options, completion_fields
from pilotfish.daemon.front.requests import AnswerSettings
from pilotfish.daemon.front.runners import Lease


@dataclass(frozen=True, slots=True)
class Logprob:
    """One token's log-probability; `top` holds alternatives when they were asked for."""

    token: str
    logprob: float
    top: tuple[tuple[str, float], ...] = ()

    def to_json(self) -> dict[str, Any]:
        """As Ollama's API shows it."""
        shown: dict[str, Any] = {"token": self.token, "logprob": self.logprob}
        if self.top:
            shown["top_logprobs"] = [{"token": token, "logprob": logprob} for token, logprob in self.top]
        return shown


@dataclass(frozen=True, slots=True)
class Call:
    """A tool that the model calls, with all of its arguments."""

    index: int
    id: str
    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Piece:
    """What to send now. `tokens` are the ids it comes from, `extra` what the runner says about them beyond that."""

    text: str
    logprobs: tuple[Logprob, ...] = ()
    tokens: tuple[int, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)
    thinking: str = ""
    calls: tuple[Call, ...] = ()


@dataclass(frozen=True, slots=True)
class Final(Piece):
    """The end of an answer. Counts are tokens, durations nanoseconds; `tokens` are all ids of the answer."""

    done_reason: str = "stop"
    prompt_eval_count: int = 0
    prompt_eval_duration: int = 0
    eval_count: int = 0
    eval_duration: int = 0


def joined(pieces: Sequence[Piece]) -> Piece:
    """All that was said, thought and called."""
    return Piece(
        "".join(piece.text for piece in pieces),
        tuple(logprob for piece in pieces for logprob in piece.logprobs),
        thinking="".join(piece.thinking for piece in pieces),
        calls=tuple(call for piece in pieces for call in piece.calls),
    )


def completion_body(
    prompt: str | Sequence[int],
    settings: AnswerSettings,
    options: Options,
    *,
    shift: bool,
    unsaid_if_zero: bool,
    fields: Mapping[str, Any],
) -> dict[str, Any]:
    """The runner's request for one answer. With `shift`, a full context may forget; `unsaid_if_zero` is that of
    `completion_fields`; `fields` are what the runner said that this chat needs."""
    body: dict[str, Any] = {
        "prompt": prompt if isinstance(prompt, str) else list(prompt),
        "cache_prompt": True,
        "return_tokens": True,
        "return_drafted": True,
        "context_shift": shift,
        **completion_fields(options, unsaid_if_zero=unsaid_if_zero),
        **fields,
    }
    if settings.n_probs:
        body["n_probs"] = settings.n_probs
    if settings.schema is not None:
        body["json_schema"] = settings.schema
    return body


async def answer(
    lease: Lease,
    prompt: str | Sequence[int],
    settings: AnswerSettings,
    options: Options,
    *,
    shift: bool,
    unsaid_if_zero: bool,
    fields: Mapping[str, Any],
) -> AsyncGenerator[Piece, None]:
    """Pieces in order, then exactly one Final. Log-probabilities of tokens without text travel with the next piece."""
    ids: list[int] = []
    waiting: list[Logprob] = []
    body = completion_body(prompt, settings, options, shift=shift, unsaid_if_zero=unsaid_if_zero, fields=fields)
    async with contextlib.aclosing(lease.client.completion(body)) as events:
        async for event in events:
            text, tokens = str(event.get("content", "")), _ids(event.get("tokens"))
            ids += tokens
            if settings.logprobs:
                waiting += _logprobs(event.get("completion_probabilities"), settings.top_logprobs)
            if event.get("stop"):
                yield _final(event, text, tuple(waiting), tuple(ids))
            elif text:
                yield Piece(text, tuple(waiting), tuple(tokens), _drafted(event, tokens))
                waiting.clear()


def _ids(value: Any) -> list[int]:
    return [token for token in value if isinstance(token, int)] if isinstance(value, list) else []


def _drafted(event: Mapping[str, Any], tokens: Sequence[int]) -> Mapping[str, Any]:
    """How many tokens of a piece a drafter proposed; nothing is said about the others."""
    return {"drafted": max(1, len(tokens))} if event.get("drafted") else {}


def _extra(event: Mapping[str, Any]) -> Mapping[str, Any]:
    extra = event.get("pilotfish")
    return extra if isinstance(extra, Mapping) else {}


def _final(event: Mapping[str, Any], text: str, logprobs: tuple[Logprob, ...], ids: tuple[int, ...]) -> Final:
    timings = event.get("timings") or {}
    extra = {key: timings[key] for key in ("draft_n", "draft_n_accepted") if key in timings}
    return Final(
        text,
        logprobs,
        ids,
        {**_extra(timings), **_extra(event), **extra},
        done_reason="length" if event.get("stop_type") == "limit" else "stop",
        prompt_eval_count=int(timings.get("cache_n", 0)) + int(timings.get("prompt_n", 0)),
        prompt_eval_duration=nanoseconds(timings.get("prompt_ms", 0.0) / 1000),
        eval_count=int(timings.get("predicted_n", 0)),
        eval_duration=nanoseconds(timings.get("predicted_ms", 0.0) / 1000),
    )


def _logprobs(value: Any, top: int) -> list[Logprob]:
    return [
        Logprob(_token(entry), _logprob(entry), tuple((_token(t), _logprob(t)) for t in _top(entry)[:top]))
        for entry in value or ()
    ]


def _token(entry: Mapping[str, Any]) -> str:
    return str(entry.get("token", ""))


def _logprob(entry: Mapping[str, Any]) -> float:
    return float(entry.get("logprob") or entry.get("prob") or 0.0)


def _top(entry: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    return entry.get("top_logprobs") or entry.get("top_probs") or ()
