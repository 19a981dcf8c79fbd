"""Chat messages to a prompt, through the model's own Jinja template."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from pilotfish.daemon.chat.chat_roles import SYSTEM_ROLES
from pilotfish.daemon.chat.rendering import RENDERER
from pilotfish.hooks.errors import RequestError
from pilotfish.hooks.protocols import Tokenizer
from pilotfish.hooks.types import TokenizerPin

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_KNOWS_DEVELOPERS = "<|channel|>"  # in the templates of models that were trained with a role of that name
_PROBE = "pilotfish"


@dataclass(frozen=True, slots=True)
class Conversation:
    """What is rendered. `prefill` is the text of a last assistant message, which the answer then continues."""

    messages: Sequence[Mapping[str, Any]]
    prefill: str = ""
    add_generation_prompt: bool = True
    extra: Mapping[str, Any] | None = None  # `chat_template_kwargs`


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
        """Whether answers may contain a reasoning section, which this runner does not take apart."""
        return any(mark in self.source for mark in ("<think>", "enable_thinking", "reasoning_content"))

    @functools.cached_property
    def takes_system(self) -> bool:
        """Whether system messages show in the prompt; found out by trying, as llama-server does."""
        probe = [{"role": "system", "content": _PROBE}, {"role": "user", "content": "hi"}]
        try:
            return _PROBE in self._rendered(Conversation(probe))
        except RequestError:
            return False

    def render(self, conversation: Conversation) -> str:
        """The prompt text. Raises RequestError in the template's own words when it refuses the messages, and when it
        does not come to an end; UnsupportedRequest when it is no template. Blocks; never on an event loop.

        Developer messages are system messages, unless the model knows the difference. Where the template has no place
        for a system message, its text goes before the next user message, or is dropped. A leading BOS that the
        tokenizer will add anyway is cut, so that it is not there twice.
        """
        text = self._rendered(replace(conversation, messages=self._adapted(conversation.messages)))
        return self._without_special(_cut_after(text, conversation.prefill))

    def _adapted(self, messages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        adapted = list(messages)
        if _KNOWS_DEVELOPERS not in self.source:
            adapted = [{**one, "role": "system"} if one["role"] == "developer" else one for one in adapted]
        if any(one["role"] in SYSTEM_ROLES for one in adapted) and not self.takes_system:
            adapted = list(_folded(adapted))
        return adapted

    def _rendered(self, conversation: Conversation) -> str:
        now = datetime.now()
        variables = {
            "date_string": now.strftime("%d %b %Y"),
            "datetime": now.strftime("%b %d %Y"),
            **(conversation.extra or {}),
            "messages": list(conversation.messages),
            "tools": None,
            "documents": None,
            "bos_token": self.bos,
            "eos_token": self.eos,
            "add_generation_prompt": conversation.add_generation_prompt,
        }
        return RENDERER.render(self.source, variables)

    def _without_special(self, text: str) -> str:
        if self._add_bos and self.bos:
            text = text.removeprefix(self.bos)
        if self._add_eos and self.eos:
            text = text.removesuffix(self.eos)
        return text


def _folded(messages: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """The messages without system messages, whose texts lead the user messages that follow them."""
    held = ""
    for message in messages:
        if message["role"] in SYSTEM_ROLES:
            held += f"{message['content']}\n"
        elif held and message["role"] == "user":
            yield {**message, "content": held + message["content"]}
            held = ""
        else:
            yield message


def _cut_after(text: str, prefill: str) -> str:
    """Up to and including the last `prefill`, so that the answer goes on where the message stopped."""
    if not prefill:
        return text
    # Templates often trim messages, so the trimmed text is looked for as well.
    for wanted in (prefill, prefill.strip()):
        at = text.rfind(wanted)
        if at >= 0:
            return text[: at + len(wanted)]
    raise RequestError("the model's chat template does not show the last assistant message, so it cannot be continued")
