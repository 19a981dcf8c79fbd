"""Chat messages to a prompt, through the model's own Jinja template."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from pilotfish.daemon.chat.answers.called_tools import Tool
from pilotfish.daemon.chat.answers.mistral_calls import ARGS, CALL_ID, TOOL_CALLS
from pilotfish.daemon.chat.chat_messages import (
    folded,
    text_of,
    with_blocks,
    with_object_arguments,
    with_texts,
    with_thinking,
)
from pilotfish.daemon.chat.chat_roles import SYSTEM_ROLES
from pilotfish.daemon.chat.rendering import RENDERER
from pilotfish.daemon.chat.template_traits import TemplateTraits
from pilotfish.hooks.errors import RequestError
from pilotfish.hooks.protocols import Tokenizer
from pilotfish.hooks.types import TokenizerPin

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# What templates call it to show what was thought in earlier turns; all but the first mean the opposite.
KEEPS_THOUGHTS = ("preserve_thinking", "clear_thinking", "truncate_history_thinking", "drop_thinking")
_KNOWS_DEVELOPERS = "<|channel|>"  # in the templates of models that were trained with a role of that name
_END_OF_CHANNEL = "<|end|>"
_FINAL_CHANNEL = "<|end|><|start|>assistant<|channel|>final<|message|>"
_PROBE = "pilotfish"

_Message = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Conversation:
    """What is rendered: messages as llama-server has them, with texts or parts as contents.

    `continues`: the answer goes on where the last message, of the assistant, stopped.
    """

    messages: Sequence[_Message]
    continues: bool = False
    add_generation_prompt: bool = True
    extra: Mapping[str, Any] | None = None  # `chat_template_kwargs`
    tools: tuple[Tool, ...] = ()
    enable_thinking: bool = True


@dataclass(frozen=True, slots=True)
class RenderedChat:
    """A prompt. `begun` is the part at its end that belongs to the answer: an open tag, or what is continued."""

    prompt: str
    begun: str = ""


class ChatTemplate:
    """A template and the special texts it refers to. What is wrong with its source is found when it is rendered."""

    def __init__(self, source: str, *, bos: str = "", eos: str = "", add_bos: bool = False, add_eos: bool = False):
        self.source = source
        self.bos = bos
        self.eos = eos
        self._add_bos = add_bos
        self._add_eos = add_eos

    @classmethod
    def of_model(cls, source: str, pin: TokenizerPin, tokenizer: Tokenizer) -> ChatTemplate:
        """The template with the texts of the model's own special tokens; ChatML when `source` is empty."""

        def text(token: int | None) -> str:
            return "" if token is None else tokenizer.piece(token, special=True).decode("utf-8", "replace")

        if source not in ("", CHATML):  # with ChatML, prompts are rendered by whoever asks
            RENDERER.start()
        return cls(source or CHATML, bos=text(pin.bos), eos=text(pin.eos), add_bos=pin.add_bos, add_eos=pin.add_eos)

    @property
    def thinks(self) -> bool:
        """Whether answers may contain a reasoning section, known or not."""
        return any(mark in self.source for mark in ("<think>", "enable_thinking", "reasoning_content"))

    @functools.cached_property
    def traits(self) -> TemplateTraits:
        """What the template can show. Found out by rendering, so it blocks."""
        return TemplateTraits(self.source, self._probe)

    @functools.cached_property
    def takes_system(self) -> bool:
        """Whether system messages show in the prompt; found out by trying, as llama-server does."""
        probe = [{"role": "system", "content": _PROBE}, {"role": "user", "content": "hi"}]
        try:
            return _PROBE in self._rendered(Conversation(probe))
        except RequestError:
            return False

    def render(self, conversation: Conversation) -> str:
        """The prompt text of `rendered`."""
        return self.rendered(conversation).prompt

    def rendered(self, conversation: Conversation) -> RenderedChat:
        """The prompt. Raises RequestError in the template's own words when it refuses the messages, and when it does
        not come to an end; UnsupportedRequest when it is no template. Blocks; never on an event loop.

        Developer messages are system messages, unless the model knows the difference. Where the template has no place
        for a system message, its text goes before the next user message, or is dropped. A leading BOS that the
        tokenizer will add anyway is cut, so that it is not there twice.
        """
        messages = self._adapted(conversation.messages)
        if conversation.continues:
            earlier = replace(conversation, messages=messages[:-1], add_generation_prompt=False)
            opening, begun = self._continued(self._opening(earlier), messages[-1])
            prompt = self._without_special(self._rendered(earlier))
            return RenderedChat(prompt + opening + begun, begun)
        conversation = replace(conversation, messages=messages)
        prompt = self._without_special(self._rendered(conversation))
        if not conversation.add_generation_prompt:
            return RenderedChat(_END_OF_CHANNEL.join(prompt.rsplit("<|return|>", 1)) if self._has_channels else prompt)
        if self.traits.reasoning is None:
            return RenderedChat(prompt)
        return RenderedChat(prompt, _from(self._opening(conversation), self.traits.reasoning.start.strip()))

    @property
    def _has_channels(self) -> bool:
        return _KNOWS_DEVELOPERS in self.source

    def _opening(self, conversation: Conversation) -> str:
        """What the template puts at a prompt's end so that an answer follows."""
        without = self._rendered(replace(conversation, add_generation_prompt=False))
        opened = self._rendered(replace(conversation, add_generation_prompt=True))
        same = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(without, opened, strict=False))
        return opened[sum(1 for _ in same) :]

    def _continued(self, opening: str, last: _Message) -> tuple[str, str]:
        """The opening up to where the model's own text begins, and the beginning of that."""
        content, thought = text_of(last["content"]), last.get("reasoning_content", "")
        within = bool(thought) and not content  # what is thought goes on
        if self._has_channels:
            analysis = f"<|channel|>analysis<|message|>{thought}"
            return opening, analysis if within else f"{analysis}{_FINAL_CHANNEL}{content}"
        if (tags := self.traits.reasoning) is None:
            return opening, content
        opening = opening.partition(tags.start.strip())[0]
        return opening, f"{tags.start}{thought}" + ("" if within else f"{tags.end}{content}")

    def _adapted(self, messages: Sequence[_Message]) -> list[_Message]:
        adapted = list(messages)
        if any(not isinstance(one["content"], str) for one in adapted) and not self.traits.takes_parts:
            adapted = with_texts(adapted)
        if not self._has_channels:
            adapted = [{**one, "role": "system"} if one["role"] == "developer" else one for one in adapted]
        if any(one["role"] in SYSTEM_ROLES for one in adapted) and not self.takes_system:
            adapted = list(folded(adapted))
        if any(one.get("tool_calls") for one in adapted) and self.traits.object_arguments:
            adapted = with_object_arguments(adapted)
        return adapted

    def _probe(
        self,
        messages: Sequence[_Message],
        tools: Sequence[Tool] = (),
        *,
        generation: bool = False,
        **extra: Any,
    ) -> str:
        return self._rendered(Conversation(messages, False, generation, extra, tuple(tools)))

    def _rendered(self, conversation: Conversation) -> str:
        now = datetime.now()
        variables = {
            "date_string": now.strftime("%d %b %Y"),
            "datetime": now.strftime("%b %d %Y"),
            "documents": None,
            "enable_thinking": conversation.enable_thinking,
            **_known_by_other_names(conversation.extra or {}),
            "messages": self._in_its_form(conversation.messages),
            "tools": [tool.to_json() for tool in conversation.tools] or None,
            "bos_token": self.bos,
            "eos_token": self.eos,
            "add_generation_prompt": conversation.add_generation_prompt,
        }
        return RENDERER.render(self.source, variables)

    def _in_its_form(self, messages: Sequence[_Message]) -> list[_Message]:
        if self._has_channels:
            return with_thinking(messages)
        return with_blocks(messages) if _takes_blocks(self.source) else list(messages)

    def _without_special(self, text: str) -> str:
        if self._add_bos and self.bos:
            text = text.removeprefix(self.bos)
        if self._add_eos and self.eos:
            text = text.removesuffix(self.eos)
        return text


def _from(opening: str, start: str) -> str:
    """The part of the opening that belongs to the answer."""
    at = opening.find(start)
    return opening[at:] if at >= 0 else ""


def _takes_blocks(source: str) -> bool:
    return all(word in source for word in ("[SYSTEM_PROMPT]", TOOL_CALLS, ARGS)) and CALL_ID not in source


def _known_by_other_names(extra: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a request, also under the names that some templates have for the same thing."""
    known = dict(extra)
    if isinstance(keeps := extra.get("preserve_reasoning"), bool):
        known |= {name: keeps is (name == KEEPS_THOUGHTS[0]) for name in KEEPS_THOUGHTS}
    if isinstance(effort := extra.get("reasoning_effort"), str) and effort:
        known |= {"reasoning_strength": effort}
    return known
