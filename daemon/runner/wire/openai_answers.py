"""The OpenAI forms of an answer, as llama-server writes them: `/v1/completions` and `/v1/chat/completions`."""

from __future__ import annotations

import secrets
import time
from typing import Any

import pilotfish
from pilotfish.daemon.chat.answers.answer_format import AnswerReading
from pilotfish.daemon.core.generation import Outcome, StopType
from pilotfish.daemon.runner.wire.chat_message import ChatMessage
from pilotfish.daemon.runner.wire.completion import (
    event,
    probabilities,
    report_json,
    timings_json,
    without_stopping_word,
)
from pilotfish.daemon.runner.wire.completion_request import CompletionRequest
from pilotfish.daemon.runner.wire.fields import Fields, unsupported
from pilotfish.daemon.runner.wire.growing_answer import Answer, AnswerChunk

DONE = b"data: [DONE]\n\n"


class _Form:
    """What both forms share: the envelope and the ending."""

    done = DONE
    object = ""

    def __init__(self, request: CompletionRequest, model: str) -> None:
        self._request = request
        self._envelope = {
            "created": int(time.time()),
            "model": model,
            "system_fingerprint": f"pilotfish-{pilotfish.__version__}",
            "id": f"chatcmpl-{secrets.token_urlsafe(24)}",
        }

    def _body(self, choices: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
        return {"choices": choices, **self._envelope, "object": self.object, **more}

    def together(self, bodies: list[dict[str, Any]]) -> Any:
        """The body for all prompts of the request: the first, with every choice."""
        first = bodies[0]
        first["choices"] = [choice for body in bodies for choice in body["choices"]]
        return first


class Text(_Form):
    """The `text_completion` format."""

    object = "text_completion"

    def chunk(self, answer: Answer, chunk: AnswerChunk) -> bytes:
        """One event of the stream."""
        logprobs = {"content": probabilities(chunk.logprobs)} if chunk.logprobs else None
        choice = {"text": chunk.text, "index": answer.index, "logprobs": logprobs, "finish_reason": None}
        return event(self._body([choice], **_chunk_extras(self._request, chunk)))

    def last(self, answer: Answer, outcome: Outcome) -> bytes:
        """The event that ends the stream, with usage and timings."""
        return event(self._final(answer, outcome, "", None))

    def whole(self, answer: Answer, outcome: Outcome) -> dict[str, Any]:
        """The body of an answer that is not streamed."""
        logprobs = {"content": probabilities(without_stopping_word(answer, outcome))} if answer.logprobs else None
        return self._final(answer, outcome, answer.text, logprobs)

    def _final(self, answer: Answer, outcome: Outcome, text: str, logprobs: Any) -> dict[str, Any]:
        choice = {
            "text": text,
            "index": answer.index,
            "logprobs": logprobs,
            "finish_reason": finish_reason(outcome),
        }
        return self._body([choice], usage=usage(answer, outcome), **_final_extras(outcome))


class Chat(_Form):
    """The `chat.completion` format: reasoning, content and tool calls apart. One prompt, so one answer."""

    object = "chat.completion"

    def __init__(self, request: CompletionRequest, model: str, reading: AnswerReading) -> None:
        super().__init__(request, model)
        self._message = ChatMessage(reading)
        if request.stream:
            self.object = "chat.completion.chunk"

    def chunk(self, answer: Answer, chunk: AnswerChunk) -> bytes:
        """The events for one chunk: the role before the first, nothing where nothing is certain yet."""
        deltas = self._message.feed(chunk.text)
        events = b""
        if len(chunk.tokens) == chunk.predicted:
            events = event(self._delta(answer, {"role": "assistant", "content": None}))
            deltas = self._message.opening() + deltas
        if chunk.logprobs and not deltas:
            deltas = [{"content": ""}]
        bodies = [self._delta(answer, delta) for delta in deltas]
        if bodies:
            bodies[-1] |= _chunk_extras(self._request, chunk)
            if chunk.logprobs:
                bodies[-1]["choices"][0]["logprobs"] = {"content": probabilities(chunk.logprobs)}
        return events + b"".join(map(event, bodies))

    def last(self, answer: Answer, outcome: Outcome) -> bytes:
        """The events that end the stream: what was held back, the reason, then the usage if it was asked for."""
        held = b"".join(event(self._delta(answer, delta)) for delta in self._message.finish())
        ending = self._delta(answer, {}, self._finish_reason(outcome))
        if not self._request.include_usage:
            return held + event(ending | _final_extras(outcome))
        return held + event(ending) + event(self._body([], usage=usage(answer, outcome), **_final_extras(outcome)))

    def whole(self, answer: Answer, outcome: Outcome) -> dict[str, Any]:
        """The body of an answer that is not streamed."""
        self._message.feed(answer.text)
        self._message.finish()
        choice: dict[str, Any] = {
            "finish_reason": self._finish_reason(outcome),
            "index": answer.index,
            "message": self._message.to_json(),
        }
        if answer.logprobs:
            choice["logprobs"] = {"content": probabilities(without_stopping_word(answer, outcome))}
        return self._body([choice], usage=usage(answer, outcome), **_final_extras(outcome))

    def _finish_reason(self, outcome: Outcome) -> str:
        reason = finish_reason(outcome)
        return "tool_calls" if reason == "stop" and self._message.calls else reason

    def _delta(self, answer: Answer, delta: dict[str, Any], reason: str | None = None, **more: Any) -> dict[str, Any]:
        return self._body([{"finish_reason": reason, "index": answer.index, "delta": delta}], **more)


def checked_text_body(body: dict[str, Any]) -> dict[str, Any]:
    """A body of `/v1/completions`, for which the native fields hold. Raises UnsupportedRequest for OpenAI's extras."""
    fields = Fields(body)
    remedy = "leave it out"
    if fields.boolean("echo"):
        unsupported("echo", "the prompt is not repeated here", remedy)
    if fields.integer("best_of", default=1) > 1:
        unsupported("best_of", "one answer is generated, not the best of several", remedy)
    if fields.text("suffix"):
        unsupported("suffix", "text is not inserted before a suffix here", remedy)
    return body


def finish_reason(outcome: Outcome) -> str:
    """OpenAI's word for how the answer ended."""
    return "stop" if outcome.stop_type in (StopType.EOS, StopType.WORD) else "length"


def usage(answer: Answer, outcome: Outcome) -> dict[str, Any]:
    """OpenAI's token counts."""
    prompt, predicted = len(answer.request.prompt), outcome.timings.predicted_n
    return {
        "completion_tokens": predicted,
        "prompt_tokens": prompt,
        "total_tokens": prompt + predicted,
        "prompt_tokens_details": {"cached_tokens": outcome.timings.cache_n},
    }


def _chunk_extras(request: CompletionRequest, chunk: AnswerChunk) -> dict[str, Any]:
    extras: dict[str, Any] = {"timings": timings_json(chunk.timings)} if chunk.timings else {}
    return extras | {"drafted": chunk.drafted} if request.return_drafted else extras


def _final_extras(outcome: Outcome) -> dict[str, Any]:
    return {"timings": timings_json(outcome.timings), "pilotfish": report_json(outcome)}
