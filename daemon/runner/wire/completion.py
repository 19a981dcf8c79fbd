"""llama-server's JSON for `/completion`: chunks, the final object, probabilities, timings and errors."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pilotfish.daemon.core.generation import Outcome, StopType, Timings
from pilotfish.daemon.runner.wire.completion_request import CompletionRequest
from pilotfish.daemon.runner.wire.generation_settings import settings_json
from pilotfish.daemon.runner.wire.growing_answer import Answer, AnswerChunk
from pilotfish.hooks.errors import ContextOverflow, PilotfishError, UnsupportedRequest, UsageError
from pilotfish.hooks.types import TokenLogprob

LOWEST = -3.4028234663852886e38  # what stands for minus infinity, which JSON does not have


class Native:
    """The `/completion` form of one request."""

    done = b""  # nothing follows the final chunk

    def __init__(self, request: CompletionRequest, model: str) -> None:
        self._request = request
        self._model = model

    def chunk(self, answer: Answer, chunk: AnswerChunk) -> bytes:
        """One event of the stream."""
        body: dict[str, Any] = {
            "index": answer.index,
            "content": chunk.text,
            "tokens": chunk.tokens,
            "stop": False,
            "id_slot": -1,
            "tokens_predicted": chunk.predicted,
            "tokens_evaluated": len(answer.request.prompt),
        }
        if chunk.timings:
            body["timings"] = timings_json(chunk.timings)
        if chunk.logprobs:
            body["completion_probabilities"] = probabilities(chunk.logprobs)
        if self._request.return_drafted:
            body["drafted"] = chunk.drafted
        return event(body)

    def last(self, answer: Answer, outcome: Outcome) -> bytes:
        """The event that ends the stream; what was sent in chunks is not repeated."""
        body = self._final(answer, outcome, "", list(answer.release_held()))
        return event(_only(body, self._request.response_fields))

    def whole(self, answer: Answer, outcome: Outcome) -> dict[str, Any]:
        """The body of an answer that is not streamed."""
        tokens = answer.tokens if self._request.return_tokens else []
        body = self._final(answer, outcome, answer.text, tokens)
        if answer.logprobs:
            body["completion_probabilities"] = probabilities(without_stopping_word(answer, outcome))
        return _only(body, self._request.response_fields)

    def together(self, bodies: list[dict[str, Any]]) -> Any:
        """The body for all prompts of the request."""
        return bodies[0] if len(bodies) == 1 else bodies

    def _final(self, answer: Answer, outcome: Outcome, content: str, tokens: list[int]) -> dict[str, Any]:
        prompt = answer.request.prompt
        return {
            "index": answer.index,
            "content": content,
            "tokens": tokens,
            "id_slot": outcome.slot,
            "stop": True,
            "model": self._model,
            "tokens_predicted": outcome.timings.predicted_n,
            "tokens_evaluated": len(prompt),
            "generation_settings": settings_json(self._request, answer.request),
            "prompt": answer.tokenizer.decode(prompt).decode("utf-8", "replace"),
            "has_new_line": "\n" in answer.text,
            "truncated": outcome.truncated,
            "stop_type": outcome.stop_type,
            "stopping_word": outcome.stopping_word,
            "tokens_cached": max(0, len(prompt) + outcome.timings.predicted_n - 1 - outcome.discarded),
            "timings": timings_json(outcome.timings),
            "pilotfish": report_json(outcome),
        }


def event(body: Mapping[str, Any]) -> bytes:
    """One server-sent event."""
    return b"data: " + dump(body) + b"\n\n"


_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False).encode


def dump(body: Any) -> bytes:
    """UTF-8 JSON: control characters escaped, everything else as it is."""
    return _encode(body).encode("utf-8", "replace")


def timings_json(timings: Timings) -> dict[str, Any]:
    """As llama-server counts: the first token belongs to the prompt, so n tokens took n - 1 steps."""
    steps = max(0, timings.predicted_n - 1)
    body: dict[str, Any] = {
        "cache_n": timings.cache_n,
        "prompt_n": timings.prompt_n,
        "prompt_ms": timings.prompt_ms,
        "prompt_per_token_ms": _ratio(timings.prompt_ms, timings.prompt_n),
        "prompt_per_second": _ratio(1000 * timings.prompt_n, timings.prompt_ms),
        "predicted_n": timings.predicted_n,
        "predicted_ms": timings.predicted_ms,
        "predicted_per_token_ms": _ratio(timings.predicted_ms, steps),
        "predicted_per_second": _ratio(1000 * steps, timings.predicted_ms),
    }
    if timings.draft_n > 0:
        body |= {"draft_n": timings.draft_n, "draft_n_accepted": timings.draft_n_accepted}
    return body


def report_json(outcome: Outcome) -> dict[str, Any]:
    """What pilotfish did for this answer; the one key that stock does not have."""
    report = outcome.report
    return {
        "parity": outcome.parity,
        "lane": outcome.lane,
        "speculated": outcome.speculated,
        "rounds": report.rounds,
        "drafted": report.drafted,
        "accepted": report.accepted,
        "drafters": list(report.drafters),
        "dropped": report.dropped,
    }


def probabilities(logprobs: Sequence[TokenLogprob]) -> list[dict[str, Any]]:
    """Per token: its log-probability and the most probable ones."""
    return [_logprob(one) | {"top_logprobs": [_logprob(other) for other in one.top]} for one in logprobs]


def without_stopping_word(answer: Answer, outcome: Outcome) -> list[TokenLogprob]:
    """The log-probabilities without those of the stop string's tokens, which are not part of the answer."""
    if outcome.stop_type is not StopType.WORD:
        return answer.logprobs
    cut = len(answer.tokenizer.encode(outcome.stopping_word, add_special=False, parse_special=False))
    return answer.logprobs[: max(0, len(answer.logprobs) - cut)]


def error_json(error: BaseException) -> dict[str, Any]:
    """llama-server's error object; its `code` is also the HTTP status."""
    if isinstance(error, ContextOverflow):
        counts = {"n_prompt_tokens": error.n_prompt_tokens, "n_ctx": error.n_ctx}
        return {"code": 400, "message": str(error), "type": "exceed_context_size_error", **counts}
    if isinstance(error, UnsupportedRequest):
        return {"code": 501, "message": str(error), "type": "not_supported_error"}
    if isinstance(error, UsageError):
        return {"code": 400, "message": str(error), "type": "invalid_request_error"}
    if isinstance(error, PilotfishError):
        return {"code": 500, "message": str(error), "type": "server_error"}
    message = f"internal error ({type(error).__name__}: {error}); the runner's log has the details"
    return {"code": 500, "message": message, "type": "server_error"}


def _logprob(one: TokenLogprob) -> dict[str, Any]:
    text = one.piece.decode("utf-8", "ignore")
    return {"id": one.id, "token": text, "bytes": list(one.piece), "logprob": max(one.logprob, LOWEST)}


def _only(body: dict[str, Any], paths: Sequence[str]) -> dict[str, Any]:
    """The fields of `body` that were asked for; `a/b` takes `b` out of `a`. Missing ones are left out."""
    if not paths:
        return body
    found: dict[str, Any] = {}
    for path in paths:
        value: Any = body
        for key in path.split("/"):
            value = value.get(key, _MISSING) if isinstance(value, dict) else _MISSING
        if value is not _MISSING:
            found[path] = value
    return found


_MISSING = object()


def _ratio(over: float, under: float) -> float:
    return over / under if under > 0 else 0.0
