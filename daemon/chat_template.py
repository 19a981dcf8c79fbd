"""Chat messages to a prompt, through the model's own Jinja template in a sandbox."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import Template, TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from pilotfish.hooks.errors import BrokenModel, RequestError
from pilotfish.hooks.protocols import Tokenizer
from pilotfish.hooks.types import TokenizerPin

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@dataclass(frozen=True, slots=True)
class Conversation:
    """What is rendered. `prefill` is the text of a last assistant message, which the answer then continues."""

    messages: Sequence[Mapping[str, Any]]
    prefill: str = ""
    add_generation_prompt: bool = True
    extra: Mapping[str, Any] | None = None  # `chat_template_kwargs`


class ChatTemplate:
    """A compiled template and the special texts it refers to."""

    def __init__(self, source: str, *, bos: str = "", eos: str = "", add_bos: bool = False, add_eos: bool = False):
        """Raises BrokenModel when `source` is not a template."""
        self.source = source
        self.bos = bos
        self.eos = eos
        self._add_bos = add_bos
        self._add_eos = add_eos
        self._template = _compile(source)

    @classmethod
    def of_model(cls, source: str, pin: TokenizerPin, tokenizer: Tokenizer) -> ChatTemplate:
        """The template with the texts of the model's own special tokens; ChatML when `source` is empty."""

        def text(token: int | None) -> str:
            return "" if token is None else tokenizer.piece(token, special=True).decode("utf-8", "replace")

        return cls(source or CHATML, bos=text(pin.bos), eos=text(pin.eos), add_bos=pin.add_bos, add_eos=pin.add_eos)

    @property
    def thinks(self) -> bool:
        """Whether answers may contain a reasoning section, which this runner does not take apart."""
        return any(mark in self.source for mark in ("<think>", "enable_thinking", "reasoning_content"))

    def render(self, conversation: Conversation) -> str:
        """The prompt text. Raises RequestError in the template's own words when it refuses the messages.

        A leading BOS that the tokenizer will add anyway is cut, so that it is not there twice.
        """
        variables = {
            **(conversation.extra or {}),
            "messages": list(conversation.messages),
            "tools": None,
            "documents": None,
            "bos_token": self.bos,
            "eos_token": self.eos,
            "add_generation_prompt": conversation.add_generation_prompt,
        }
        try:
            text = self._template.render(variables)
        except TemplateError as error:
            raise RequestError(f"the model's chat template refused these messages: {error}") from error
        except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:
            raise RequestError(f"the model's chat template failed on these messages: {error!r}") from error
        return self._without_special(_cut_after(text, conversation.prefill))

    def _without_special(self, text: str) -> str:
        if self._add_bos and self.bos:
            text = text.removeprefix(self.bos)
        if self._add_eos and self.eos:
            text = text.removesuffix(self.eos)
        return text


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


def _compile(source: str) -> Template:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    try:
        return environment.from_string(source)
    except TemplateError as error:
        raise BrokenModel(f"the model's chat template cannot be compiled: {error}; pull the model again") from error


def _tojson(value: Any, ensure_ascii: bool = False, indent: int | None = None, **options: Any) -> str:
    separators, sort_keys = options.get("separators"), bool(options.get("sort_keys"))
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)
