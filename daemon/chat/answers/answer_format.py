"""How the answers of a model are written, told from its chat template, and what reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pilotfish.daemon.chat.answers.answer_events import AnswerEvent, Content
from pilotfish.daemon.chat.answers.bare_calls import BareCalls
from pilotfish.daemon.chat.answers.call_object import CallKeys
from pilotfish.daemon.chat.answers.called_tools import Tool
from pilotfish.daemon.chat.answers.channels import Channels
from pilotfish.daemon.chat.answers.deepseek_calls import CALLS as DEEPSEEK
from pilotfish.daemon.chat.answers.deepseek_calls import FENCE, DeepseekCalls
from pilotfish.daemon.chat.answers.grammar_writer import CallRules, CallWish, GrammarWriter
from pilotfish.daemon.chat.answers.incoming_text import AnswerParser, IncomingText, Steps
from pilotfish.daemon.chat.answers.marked_calls import MarkedCalls
from pilotfish.daemon.chat.answers.mistral_calls import ARGS, CALL_ID, LISTED_CALLS, TOOL_CALLS, NamedCalls
from pilotfish.daemon.chat.answers.reasoning import ReasoningTags, read_reasoning
from pilotfish.daemon.chat.answers.tagged_calls import PARAMETER, TaggedCalls


class CallFormat(Protocol):
    """One way of writing calls."""

    @property
    def markers(self) -> tuple[str, ...]:
        """Texts of which some models have tokens that are not shown otherwise."""
        ...

    def read(self, incoming: IncomingText, tools: Mapping[str, Tool]) -> Steps[None]:
        """Read what comes after the reasoning, to the answer's end."""
        ...

    def grammar(self, writer: GrammarWriter, tools: Sequence[Tool], wish: CallWish) -> CallRules | None:
        """The rules of calls; None where they are not held to anything."""
        ...


CHANNELS = "channels"
TAGGED = "tagged"
_COMMAND_R = CallKeys(name=("tool_name",), arguments=("parameters",), id=("tool_call_id",), id_first=True)
CALL_FORMATS: Mapping[str, CallFormat] = {
    "hermes": MarkedCalls("<tool_call>", "</tool_call>"),
    "granite": MarkedCalls("<|tool_call|>", listed=True),
    "nemotron": MarkedCalls("<TOOLCALL>", "</TOOLCALL>", listed=True),
    "command-r": MarkedCalls("<|START_ACTION|>", "<|END_ACTION|>", listed=True, keys=_COMMAND_R),
    "llama": BareCalls(),
    "mistral-list": LISTED_CALLS,
    "mistral-named": NamedCalls(),
    "mistral-ids": NamedCalls(ids=True),
    "deepseek": DeepseekCalls(fenced=False),
    "deepseek-fenced": DeepseekCalls(fenced=True),
    TAGGED: TaggedCalls(),
    CHANNELS: Channels(),
}
# What stands in the templates of each; the first that fits is meant.
_SIGNS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (CHANNELS, ("<|channel|>", "<|message|>")),
    ("mistral-ids", (TOOL_CALLS, ARGS, CALL_ID)),
    ("mistral-named", (TOOL_CALLS, ARGS)),
    ("mistral-list", (TOOL_CALLS,)),
    ("deepseek-fenced", (DEEPSEEK, FENCE)),
    ("deepseek", (DEEPSEEK,)),
    ("command-r", ("<|START_ACTION|>", "tool_name")),
    ("nemotron", ("<TOOLCALL>",)),
    (TAGGED, ("<tool_call>", "<function=", PARAMETER)),
    ("hermes", ("<tool_call>", "</tool_call>")),
    ("granite", ("<|tool_call|>",)),
    ("llama", ("<|start_header_id|>", '"parameters": ')),
)
# In the templates of models that write calls in ways that are not read here, whatever else stands in them.
_FOREIGN = ("<arg_key>", "<invoke name=", "<|tool_calls_section_begin|>", "dsml_token", "<|tool_call>call:", ">>>all")
KNOWN_TAGS = (
    ReasoningTags("<think>", "</think>"),
    ReasoningTags("[THINK]", "[/THINK]"),
    ReasoningTags("<|START_THINKING|>", "<|END_THINKING|>"),
    ReasoningTags("<seed:think>", "</seed:think>"),
)


def call_format_of(template: str) -> str:
    """The key in CALL_FORMATS of the way in which a template's text suggests that calls are written; may be empty."""
    if any(sign in template for sign in _FOREIGN):
        return ""
    return next((name for name, signs in _SIGNS if all(sign in template for sign in signs)), "")


def always_read(template: str) -> str:
    """The key in CALL_FORMATS of a template whose answers are read in its way even where nothing may be called: that
    is so of those that llama-server has parsers of their own for."""
    calls = call_format_of(template)
    return calls if calls in (CHANNELS, TAGGED, "mistral-named") else ""


def may_think(template: str) -> bool:
    """Whether a template's text speaks of reasoning in a way that is read here."""
    known = any(tags.start in template and tags.end in template for tags in KNOWN_TAGS)
    return known or call_format_of(template) == CHANNELS


@dataclass(frozen=True, slots=True)
class AnswerReading:
    """How one answer is to be read.

    `calls` is a key of CALL_FORMATS, or empty where none are looked for. `begun` is the part of the prompt that belongs
    to the answer: an open tag, or with `continued` what the client wrote for the model.
    """

    calls: str = ""
    reasoning: ReasoningTags | None = None
    tools: tuple[Tool, ...] = ()
    begun: str = ""
    continued: bool = False
    thoughts: bool = True  # whether reasoning is told apart; else it is content

    @property
    def reads(self) -> bool:
        """Whether an answer can be anything but content as it stands."""
        return bool(self.calls) or (self.thoughts and self.reasoning is not None)

    @property
    def markers(self) -> tuple[str, ...]:
        """Texts that must be shown even where they are tokens that usually are not."""
        reasoning = self.reasoning.markers if self.reasoning else ()
        return (*reasoning, *(CALL_FORMATS[self.calls].markers if self.calls else ()))

    def to_json(self) -> dict[str, Any]:
        """All but the tools, which whoever asked knows."""
        tags = self.reasoning
        return {
            "calls": self.calls,
            "reasoning": [tags.start, tags.end, *tags.cut_by] if tags else None,
            "begun": self.begun,
            "continued": self.continued,
            "thoughts": self.thoughts,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any], tools: Sequence[Tool] = ()) -> AnswerReading:
        """What `to_json` made, with the tools."""
        tags = value["reasoning"]
        return cls(
            calls=value["calls"],
            reasoning=ReasoningTags(tags[0], tags[1], tuple(tags[2:])) if tags else None,
            tools=tuple(tools),
            begun=value["begun"],
            continued=value["continued"],
            thoughts=value["thoughts"],
        )

    def parser(self) -> tuple[AnswerParser, list[AnswerEvent]]:
        """A parser for what the model writes, and the events of what the prompt has begun."""
        parser = AnswerParser(self._read)
        return parser, parser.feed(self.begun) if self.begun else []

    def _read(self, incoming: IncomingText) -> Steps[None]:
        if self.calls == CHANNELS:
            yield from Channels(self.thoughts).read(incoming, self._named())
            return
        if self.reasoning is not None and self.thoughts:
            yield from read_reasoning(incoming, self.reasoning)
        elif self.calls:
            incoming.take((yield from incoming.past_space()))
        if self.calls:
            yield from CALL_FORMATS[self.calls].read(incoming, self._named())
        else:
            yield from incoming.pass_until((), Content)

    def _named(self) -> dict[str, Tool]:
        return {tool.name: tool for tool in self.tools}


def whole(reading: AnswerReading, texts: Sequence[str]) -> list[AnswerEvent]:
    """The events of an answer that came in these pieces."""
    parser, events = reading.parser()
    for text in texts:
        events += parser.feed(text)
    return events + parser.finish()
