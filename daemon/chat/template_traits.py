"""What a chat template can show, found out by having it show something.

llama-server finds out in this way, too. What the model is expected to write is read off the template as well: a way of
writing calls only counts as known if the calls that the template writes can be read back.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from pilotfish.daemon.chat.answers.answer_events import AnswerMessage
from pilotfish.daemon.chat.answers.answer_format import (
    CALL_FORMATS,
    KNOWN_TAGS,
    TAGGED,
    AnswerReading,
    call_format_of,
    whole,
)
from pilotfish.daemon.chat.answers.called_tools import Tool
from pilotfish.daemon.chat.answers.json_extent import value_of
from pilotfish.daemon.chat.answers.marked_calls import MarkedCalls
from pilotfish.daemon.chat.answers.reasoning import ReasoningTags
from pilotfish.daemon.chat.answers.tagged_calls import CALL
from pilotfish.hooks.errors import RequestError

Messages = Sequence[Mapping[str, Any]]

_ASKED_FOR, _THOUGHT = "pilotfish-asks", "pilotfish-thinks"
_ARGUMENTS = {"pilotfish_key": "pilotfish-value"}
_TOOL = Tool(
    "pilotfish_probe",
    "pilotfish-describes",
    {"type": "object", "properties": {"pilotfish_key": {"type": "string", "description": "any"}}},
)
_QUESTION = {"role": "user", "content": _ASKED_FOR}
_OLD_TAGS = "content.split('</think>')"  # in templates that drop what was thought, whatever they call it


class Renders(Protocol):
    """Renders messages with a template. Raises RequestError when that refuses them."""

    def __call__(
        self, messages: Messages, tools: Sequence[Tool] = (), *, generation: bool = False, **variables: Any
    ) -> str:
        """The text."""
        ...


class TemplateTraits:
    """What a template can do. Each trait is found out when it is asked for, by rendering; so they block."""

    def __init__(self, source: str, render: Renders) -> None:
        self._source, self._render = source, render

    @functools.cached_property
    def takes_parts(self) -> bool:
        """Whether contents in parts are shown part by part."""
        shown = self._shown([{"role": "user", "content": [{"type": "text", "text": _ASKED_FOR}]}])
        return _ASKED_FOR in shown and f"'{_ASKED_FOR}'" not in shown

    @functools.cached_property
    def shows_tools(self) -> bool:
        """Whether the tools of a request are in the prompt."""
        return _TOOL.name in self._shown([_QUESTION], [_TOOL])

    @functools.cached_property
    def calls(self) -> str:
        """The key in CALL_FORMATS of the calls that the template writes; empty if they cannot be read back."""
        return next((calls for calls, _ in self._calls), "")

    @property
    def object_arguments(self) -> bool:
        """Whether arguments in the history have to be objects, not JSON text."""
        return any(as_objects for _, as_objects in self._calls)

    @functools.cached_property
    def parallel_calls(self) -> bool:
        """Whether one message may have several calls."""
        return any(self._read_back(calls, 2, as_objects=as_objects) for calls, as_objects in self._calls)

    @functools.cached_property
    def call_space(self) -> str:
        """The whitespace behind the marker before a call."""
        form = CALL_FORMATS.get(self.calls)
        if not isinstance(form, MarkedCalls):
            return ""
        text = self._called(1, as_objects=self.object_arguments)
        found = re.search(rf"{re.escape(form.start)}(\s*)", text)
        return found[1] if found else ""

    @functools.cached_property
    def reasoning(self) -> ReasoningTags | None:
        """Between which tags answers may begin with reasoning."""
        known = [tags for tags in KNOWN_TAGS if tags.start in self._source or tags.end in self._source]
        tags = self._tags(known) if known else None
        return replace(tags, cut_by=(CALL,)) if tags and call_format_of(self._source) == TAGGED else tags

    @functools.cached_property
    def _calls(self) -> tuple[tuple[str, bool], ...]:
        """The way in which calls are written, and whether the template is given their arguments as objects."""
        calls = call_format_of(self._source)
        ways = [(calls, as_objects) for as_objects in (True, False) if calls]
        return next(((way,) for way in ways if self._read_back(way[0], 1, as_objects=way[1])), ())

    def _read_back(self, calls: str, count: int, *, as_objects: bool) -> bool:
        message = AnswerMessage()
        message.add(whole(AnswerReading(calls, tools=(_TOOL,)), [self._called(count, as_objects=as_objects)]))
        found = [(call.name, value_of(call.arguments)) for call in message.calls]
        return found == [(_TOOL.name, _ARGUMENTS)] * count

    def _called(self, count: int, *, as_objects: bool) -> str:
        """What the template writes for calls, from the question on."""
        arguments = _ARGUMENTS if as_objects else json.dumps(_ARGUMENTS)
        function = {"name": _TOOL.name, "arguments": arguments}
        calls = [{"type": "function", "function": function, "id": f"pilotfis{number}"} for number in range(count)]
        text = self._shown([_QUESTION, {"role": "assistant", "content": "", "tool_calls": calls}], [_TOOL])
        return text[text.rfind(_ASKED_FOR) :]

    def _tags(self, known: Sequence[ReasoningTags]) -> ReasoningTags | None:
        thought = {"role": "assistant", "content": "pilotfish-answers", "reasoning_content": _THOUGHT}
        shown = self._shown([_QUESTION, thought])
        for tags in known:
            around = rf"({re.escape(tags.start)}\s*){_THOUGHT}(\s*{re.escape(tags.end)}\s*)"
            if found := re.search(around, shown):
                return ReasoningTags(found[1], found[2])
        if _OLD_TAGS in self._source and "reasoning_content" not in self._source:
            return KNOWN_TAGS[0]
        on, off = (self._shown([_QUESTION], generation=True, enable_thinking=thinks) for thinks in (True, False))
        return next((tags for tags in known if on != off and tags.start in on + off), None)

    def _shown(self, messages: Messages, tools: Sequence[Tool] = (), **variables: Any) -> str:
        """The text; empty if the template refuses."""
        try:
            return self._render(messages, tools, **variables)
        except RequestError:
            return ""
