"""What a client of Ollama's API asks for, checked once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pilotfish.daemon.chat.chat_roles import SYSTEM_ROLES, has_tools
from pilotfish.daemon.front.bodies import Body
from pilotfish.daemon.front.durations import parse_keep_alive
from pilotfish.daemon.http.json_text import shown
from pilotfish.hooks.errors import RequestError

_THINK_LEVELS = ("high", "medium", "low", "max")
MAX_TOP_LOGPROBS = 20


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a chat. `role` is lowercase; what the front cannot pass on is only noted as present."""

    role: str
    content: str
    has_images: bool = False
    has_tools: bool = False  # it calls tools, or is what a call returned

    @property
    def is_system(self) -> bool:
        """Whether it says how to answer."""
        return self.role in SYSTEM_ROLES

    def to_json(self) -> dict[str, str]:
        """As a chat template sees it."""
        return {"role": self.role, "content": self.content}


@dataclass(frozen=True, slots=True)
class AnswerSettings:
    """What generate and chat have in common. `schema` is a JSON schema the answer must obey, or None."""

    model: str
    stream: bool = True
    options: Mapping[str, Any] = field(default_factory=dict)
    keep_alive: float | None = None  # seconds; None leaves it as it is
    schema: Mapping[str, Any] | None = None
    think: bool = False
    truncate: bool = True  # whether a prompt longer than the context may be cut
    shift: bool | None = None  # whether the context may forget its beginning; None leaves it to the model
    logprobs: bool = False
    top_logprobs: int = 0
    debug_render_only: bool = False

    @property
    def n_probs(self) -> int:
        """How many alternatives to ask the runner for; Ollama asks for one even when none is shown."""
        return max(self.top_logprobs, 1) if self.logprobs else 0


@dataclass(frozen=True, slots=True)
class GenerateRequest:
    """A body of `/api/generate`."""

    settings: AnswerSettings
    prompt: str = ""
    suffix: str = ""
    system: str = ""
    template: str = ""
    context: tuple[int, ...] | None = None
    raw: bool = False
    has_images: bool = False


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A body of `/api/chat`."""

    settings: AnswerSettings
    messages: tuple[Message, ...] = ()
    has_tools: bool = False


def parse_generate(body: Body) -> GenerateRequest:
    """Raises RequestError in the words of the field at fault."""
    request = GenerateRequest(
        settings=_settings(body),
        prompt=body.get("prompt", str, ""),
        suffix=body.get("suffix", str, ""),
        system=body.get("system", str, ""),
        template=body.get("template", str, ""),
        context=_context(body),
        raw=body.get("raw", bool, False),
        has_images=bool(body.get("images", list, [])),
    )
    if request.raw and (request.template or request.system or request.context):
        raise RequestError("raw mode does not support template, system, or context")
    return request


def parse_chat(body: Body) -> ChatRequest:
    """Raises RequestError in the words of the field at fault."""
    messages = parse_messages(body.get("messages", list, []))
    return ChatRequest(
        settings=_settings(body),
        messages=messages,
        has_tools=bool(body.get("tools", list, [])) or any(message.has_tools for message in messages),
    )


def parse_messages(messages: list[Any]) -> tuple[Message, ...]:
    """Messages of a request or of a manifest's `messages` layer. Raises RequestError naming the position."""
    return tuple(_message(index, message) for index, message in enumerate(messages))


def _message(index: int, value: Any) -> Message:
    if not isinstance(value, dict):
        raise RequestError(f"messages[{index}] must be an object with role and content, got {shown(value)}")
    try:
        body = Body(value)
        role, content = body.get("role", str, ""), body.get("content", str, "")
        images, tools = bool(body.get("images", list, [])), has_tools(role.lower(), value)
        return Message(role.lower(), content, has_images=images, has_tools=tools)
    except RequestError as error:
        raise RequestError(f"messages[{index}].{error}") from error


def _settings(body: Body) -> AnswerSettings:
    top = body.get("top_logprobs", int, 0)
    if not 0 <= top <= MAX_TOP_LOGPROBS:
        raise RequestError(f"top_logprobs must be between 0 and {MAX_TOP_LOGPROBS}")
    return AnswerSettings(
        model=body.get("model", str, ""),
        stream=body.get("stream", bool, True),
        options=body.get("options", dict, {}),
        keep_alive=parse_keep_alive(body.fields.get("keep_alive")),
        schema=parse_format(body.fields.get("format")),
        think=parse_think(body.fields.get("think")),
        truncate=body.get("truncate", bool, True),
        shift=body.boolean("shift"),
        logprobs=body.get("logprobs", bool, False),
        top_logprobs=top,
        debug_render_only=body.get("_debug_render_only", bool, False),
    )


def parse_format(value: Any) -> Mapping[str, Any] | None:
    """The schema of `format`: `"json"` is any object, an object is a schema, null and `""` are no constraint."""
    if value is None or value == "":
        return None
    if value == "json":
        return {"type": "object"}
    if isinstance(value, dict):
        return value
    raise RequestError(f'invalid format: {shown(value)}; expected "json" or a valid JSON Schema object')


def parse_think(value: Any) -> bool:
    """Whether thinking is asked for."""
    if value is None or isinstance(value, bool):
        return bool(value)
    allowed = '"high", "medium", "low", "max", true, or false'
    if not isinstance(value, str):
        raise RequestError(f"think must be a boolean or string ({allowed})")
    if value not in _THINK_LEVELS:
        raise RequestError(f"invalid think value: {shown(value)} (must be {allowed})")
    return True


def _context(body: Body) -> tuple[int, ...] | None:
    if body.fields.get("context") is None:
        return None
    ids = body.get("context", list, [])
    if not all(isinstance(token, int) and not isinstance(token, bool) and token >= 0 for token in ids):
        raise RequestError("context must be an array of token ids, as a previous answer returned it")
    return tuple(ids)
