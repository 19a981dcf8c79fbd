"""What the model is given to read: chat messages rendered, cut to the context, and turned into token ids."""

from __future__ import annotations

import contextlib
import itertools
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from pilotfish.daemon.chat.answers.answer_format import AnswerReading, may_think
from pilotfish.daemon.chat.answers.called_tools import Tool
from pilotfish.daemon.chat.chat_roles import SYSTEM_ROLES
from pilotfish.daemon.front.catalog import ServedModel
from pilotfish.daemon.front.errors import StatusError
from pilotfish.daemon.front.requests import AnswerSettings, ChatRequest, GenerateRequest, Message
from pilotfish.daemon.front.runners import Lease
from pilotfish.hooks.errors import ContextOverflow, UnsupportedRequest

log = logging.getLogger("pilotfish.front")

# What Ollama executes for a model without a template of its own.
DEFAULT_TEMPLATE = "{{ .Prompt }}"


@dataclass(frozen=True, slots=True)
class ChatWish:
    """What the runner has to know of a chat besides its messages. `tools` are in OpenAI's form."""

    tools: tuple[Mapping[str, Any], ...] = ()
    tool_choice: str = "auto"
    parallel_tool_calls: bool | None = None
    think: bool | str | None = None
    schema: Mapping[str, Any] | None = None

    def fields(self, messages: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """A body of `/apply-template`."""
        body: dict[str, Any] = {"messages": list(messages), "json_schema": self.schema}
        if self.tools:
            body |= {"tools": list(self.tools), "tool_choice": self.tool_choice}
            body |= {"parallel_tool_calls": self.parallel_tool_calls}
        if self.think is not None:
            effort = {"reasoning_effort": self.think} if isinstance(self.think, str) else {}
            body["chat_template_kwargs"] = {"enable_thinking": bool(self.think), **effort}
        return body


@dataclass(frozen=True, slots=True)
class RenderedPrompt:
    """A prompt, its ids, how the answer to it is read, and the fields of a completion that this needs."""

    text: str
    ids: list[int] = field(default_factory=list)
    reading: AnswerReading = field(default_factory=AnswerReading)
    fields: Mapping[str, Any] = field(default_factory=dict)


_NO_BYTES = 4  # tokens at most that stand for no byte of a text: BOS, EOS, a space before the first word


class PromptRenderer(Protocol):
    """An Ollama that renders prompts."""

    async def __call__(self, model: ServedModel, messages: Sequence[Message], wish: ChatWish, /) -> str:
        """The prompt of all of these messages, the model's own among them. Raises EngineError, or StatusError."""
        ...


@dataclass(frozen=True, slots=True)
class ChatToRender:
    """What is to be rendered, and by whom: the model's own chat template where there is no `renderer`."""

    model: ServedModel
    messages: Sequence[Message]
    wish: ChatWish
    renderer: PromptRenderer | None = None


def check_template(model: ServedModel, requested: str = "", *, rendered_by_ollama: bool = False) -> None:
    """Raises UnsupportedRequest when the prompt would have to be rendered by a Go template.

    A model's own Go template is passed over where the GGUF carries a chat template, which says the same. Where Ollama
    renders, what the answer is made of is still told from that chat template; without one only plain text is sure.
    """
    if requested and requested != DEFAULT_TEMPLATE:
        raise UnsupportedRequest(
            "template: Go templates are not supported here; leave it out to use the model's own chat template, "
            "or render the prompt yourself and send it with raw: true"
        )
    if rendered_by_ollama and requested in ("", DEFAULT_TEMPLATE):
        if not model.has_chat_template and (model.config.renderer or may_think(model.template)):
            raise UnsupportedRequest(f"model '{model.short}' may think in a way that only Ollama knows; run it there")
    elif not model.has_chat_template and model.template.strip() not in ("", DEFAULT_TEMPLATE):
        raise UnsupportedRequest(
            f"model '{model.short}' has a Go template and no chat template in its GGUF, and Go templates are not "
            "supported here; render the prompt yourself and send it with raw: true, or run it through Ollama"
        )


def generate_messages(request: GenerateRequest, model: ServedModel) -> tuple[Message, ...]:
    """The chat that a prompt stands for: the system message, the model's own example turns, the prompt."""
    system = request.system or model.system
    start = (Message("system", system),) if system else ()
    examples = model.messages if request.context is None else ()
    return (*start, *examples, Message("user", request.prompt))


def chat_messages(request: ChatRequest, model: ServedModel) -> tuple[Message, ...]:
    """The model's own turns, then the request's; the model's system message unless the request starts with one."""
    own = (Message("system", model.system),) if model.system and not request.messages[0].is_system else ()
    return (*own, *model.messages, *request.messages)


async def render(lease: Lease, chat: ChatToRender, messages: Sequence[Message]) -> RenderedPrompt:
    """One prompt from some of the chat's messages; not tokenized yet."""
    rendered = await _render_here(lease, chat.model, messages, chat.wish)
    if chat.renderer is None or not chat.model.ollama_renders:
        return rendered
    text = await chat.renderer(chat.model, messages, chat.wish)
    return replace(rendered, text=text, reading=_begun_by(text, rendered.reading))


def _begun_by(prompt: str, reading: AnswerReading) -> AnswerReading:
    """The same reading after another prompt, which may leave the model in its thoughts, or not."""
    if reading.continued or reading.reasoning is None:
        return reading
    _, tag, space = prompt.rpartition(reading.reasoning.start.strip())
    return replace(reading, begun="" if space.strip() else tag + space)


async def _render_here(lease: Lease, model: ServedModel, messages: Sequence[Message], wish: ChatWish) -> RenderedPrompt:
    """By the GGUF's chat template, or as Ollama does without one."""
    if not model.has_chat_template:
        return RenderedPrompt(render_plain(messages))
    answer = await lease.client.prepare_chat(wish.fields([message.to_json() for message in messages]))
    own = answer.get("pilotfish") or {}
    tools = tuple(Tool.from_json(tool) for tool in wish.tools)
    reading = AnswerReading.from_json(own["reading"], tools) if "reading" in own else AnswerReading()
    return RenderedPrompt(str(answer["prompt"]), reading=reading, fields=own.get("completion") or {})


def render_plain(messages: Sequence[Message]) -> str:
    """The prompts and answers one after the other, system messages left out: `{{ .Prompt }}` has no place for them."""
    turns = itertools.groupby(messages, key=lambda message: message.role)
    return "".join("\n\n".join(turn.content for turn in group) for role, group in turns if role not in SYSTEM_ROLES)


async def fit(lease: Lease, chat: ChatToRender, *, truncate: bool) -> RenderedPrompt:
    """The rendered prompt and its ids; with `truncate`, the oldest turns dropped until an answer fits behind it.

    System messages and the last turn always stay, so the prompt may still be too long: see `shortened`.
    """
    return await _Fitting(lease, chat).fit(truncate=truncate)


class _Fitting:
    """One chat that has to fit the context."""

    def __init__(self, lease: Lease, chat: ChatToRender) -> None:
        self._lease, self._chat, self._messages = lease, chat, chat.messages

    async def fit(self, *, truncate: bool) -> RenderedPrompt:
        rendered = await self._rendered(0)
        if not truncate or len(self._messages) < 2 or self._fits(rendered):
            return rendered
        return await self._fewest_dropped()

    def _fits(self, rendered: RenderedPrompt) -> bool:
        return len(rendered.ids) < self._lease.launch.num_ctx

    async def _fewest_dropped(self) -> RenderedPrompt:
        """The longest rendering that fits, by halving: one for every turn dropped would take a long chat seconds."""
        last = len(self._messages) - 1
        low, high, found = 1, last, None
        while low < high:
            middle = (low + high) // 2
            start, rendered = await self._next_rendered(middle)
            if self._fits(rendered):
                high, found = middle, rendered
            else:
                low = start + 1
        return found or await self._rendered(last)

    async def _next_rendered(self, start: int) -> tuple[int, RenderedPrompt]:
        """The rendering without the turns before `start`, or the next one: many templates want turns that alternate."""
        last = len(self._messages) - 1
        for position in range(start, last):
            with contextlib.suppress(StatusError):
                return position, await self._rendered(position)
        return last, await self._rendered(last)

    async def _rendered(self, start: int) -> RenderedPrompt:
        """The prompt without the turns before `start`. Raises StatusError when the template refuses what is left."""
        system = [message for message in self._messages[:start] if message.is_system]
        rendered = await render(self._lease, self._chat, [*system, *self._messages[start:]])
        return replace(rendered, ids=await self._lease.client.tokenize(rendered.text))


async def with_context(lease: Lease, context: Sequence[int], prompt: str) -> list[int]:
    """The ids of an earlier answer, continued by a new prompt: the old ids stay what they were."""
    if not context:
        return await lease.client.tokenize(prompt)
    return [*context, *await lease.client.tokenize(prompt, add_special=False)]


def shifts(model: ServedModel, settings: AnswerSettings) -> bool:
    """Whether a full context may forget: the request says, or else what kind of model it is, as in Ollama."""
    return model.can_shift if settings.shift is None else settings.shift


async def shortened(lease: Lease, prompt: str | list[int], *, num_keep: int, allowed: bool) -> str | list[int]:
    """The prompt itself, or what Ollama keeps of one that leaves no room in the context.

    The first `num_keep` ids stay (all that fit when negative), and a BOS before them; of the rest, the newest, so that
    half of what is left of the context is free for the answer. Raises ContextOverflow where that is not `allowed`.
    """
    num_ctx = lease.launch.num_ctx
    if isinstance(prompt, str) and len(prompt.encode("utf-8", "replace")) + _NO_BYTES < num_ctx:
        return prompt
    ids = await lease.client.tokenize(prompt) if isinstance(prompt, str) else prompt
    if len(ids) < num_ctx:
        return prompt
    if not allowed or num_ctx < 2:
        raise ContextOverflow(len(ids), num_ctx)
    bos = (await lease.client.tokenize(""))[:1]
    keep = min(len(ids) if num_keep < 0 else num_keep + (ids[:1] == bos), num_ctx - 1)
    length = num_ctx - max((num_ctx - keep) // 2, 1)
    log.warning("a prompt of %d tokens is cut to %d: its first %d and its newest", len(ids), length, keep)
    return [*ids[:keep], *ids[len(ids) - (length - keep) :]]
