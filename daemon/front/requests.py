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
    """One turn of a chat. `role` is lowercase; what the front cannot pass on is only noted as present.

    `calls` are those of the assistant, in OpenAI's form; `tool_name` and `tool_call_id` say what a result belongs to.
    """

    role: str
    content: str
    thinking: str = ""
    calls: tuple[Mapping[str, Any], ...] = ()
    tool_name: str = ""
    tool_call_id: str = ""
    has_images: bool = False
    has_tools: bool = False  # it calls tools, or is what a call returned

    @property
    def is_system(self) -> bool:
        """Whether it says how to answer."""
        return self.role in SYSTEM_ROLES

    def to_json(self) -> dict[str, Any]:
        """As llama-server takes it."""
        others = {
            "reasoning_content": self.thinking,
            "tool_calls": list(self.calls),
            "name": self.tool_name,
            "tool_call_id": self.tool_call_id,
        }
        return {"role": self.role, "content": self.content, **{key: value for key, value in others.items() if value}}


@dataclass(frozen=True, slots=True)
class AnswerSettings:
    """What generate and chat have in common. `schema` is a JSON schema the answer must obey, or None."""

    model: str
    stream: bool = True
    options: Mapping[str, Any] = field(default_factory=dict)
    keep_alive: float | None = None  # seconds; None leaves it as it is
    schema: Mapping[str, Any] | None = None
    think: bool | str | None = None  # a word says how much; None leaves it to the model
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
    tools: tuple[Mapping[str, Any], ...] = ()  # in OpenAI's form
    tool_choice: str = "auto"
    parallel_tool_calls: bool | None = None

    @property
    def has_tools(self) -> bool:
        """Whether the model may call tools, or anything was ever called."""
        return bool(self.tools) or any(message.has_tools for message in self.messages)


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
        tools=parse_tools(body),
    )


def parse_tools(body: Body) -> tuple[Mapping[str, Any], ...]:
    """The tools of a request. Raises RequestError naming the one at fault."""
    tools = body.get("tools", list, [])
    for index, tool in enumerate(tools):
        if not isinstance(tool, dict) or not isinstance(tool.get("function", {}), dict):
            raise RequestError(f"tools[{index}] must be an object with a function, got {shown(tool)}")
    return tuple({"type": "function", "function": {"name": "", **tool.get("function", {})}} for tool in tools)


def parse_calls(body: Body) -> tuple[Mapping[str, Any], ...]:
    """The calls in a message; their arguments are an object in Ollama's form, and JSON text in OpenAI's."""
    calls = body.get("tool_calls", list, [])
    for index, call in enumerate(calls):
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise RequestError(
                f"tool_calls[{index}] must be an object with a function that has a name, got {shown(call)}"
            )
    return tuple(_call(call) for call in calls)


def _call(call: Mapping[str, Any]) -> Mapping[str, Any]:
    function = {"name": call["function"]["name"], "arguments": call["function"].get("arguments") or {}}
    id = {"id": call["id"]} if call.get("id") else {}
    return {"type": "function", "function": function, **id}


def parse_messages(messages: list[Any]) -> tuple[Message, ...]:
    """Messages of a request or of a manifest's `messages` layer. Raises RequestError naming the position."""
    return tuple(_message(index, message) for index, message in enumerate(messages))


def _message(index: int, value: Any) -> Message:
    if not isinstance(value, dict):
        raise RequestError(f"messages[{index}] must be an object with role and content, got {shown(value)}")
    try:
        body = Body(value)
        role, content = body.get("role", str, ""), body.get("content", str, "")
        return Message(
            role.lower(),
            content,
            thinking=body.get("thinking", str, ""),
            calls=parse_calls(body),
            tool_name=body.get("tool_name", str, ""),
            tool_call_id=body.get("tool_call_id", str, ""),
            has_images=bool(body.get("images", list, [])),
            has_tools=has_tools(role.lower(), value),
        )
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


def parse_think(value: Any) -> bool | str | None:
    """Whether thinking is asked for, and how much of it."""
    if value is None or isinstance(value, bool):
        return value
    allowed = '"high", "medium", "low", "max", true, or false'
    if not isinstance(value, str):
        raise RequestError(f"think must be a boolean or string ({allowed})")
    if value not in _THINK_LEVELS:
        raise RequestError(f"invalid think value: {shown(value)} (must be {allowed})")
    return value


def _context(body: Body) -> tuple[int, ...] | None:
    if body.fields.get("context") is None:
        return None
    ids = body.get("context", list, [])
    if not all(isinstance(token, int) and not isinstance(token, bool) and token >= 0 for token in ids):
        raise RequestError("context must be an array of token ids, as a previous answer returned it")
    return tuple(ids)
