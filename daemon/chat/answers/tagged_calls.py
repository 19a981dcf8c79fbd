"""Calls with every argument in tags of its own, as Qwen 3 Coder, Qwen 3.5 and Nemotron 3 write them.

<tool_call>
<function=name>
<parameter=key>
value
</parameter>
</function>
</tool_call>
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pilotfish.daemon.chat.answers.answer_events import CallArguments, CallStart, Content
from pilotfish.daemon.chat.answers.called_tools import Tool
from pilotfish.daemon.chat.answers.grammar_writer import CallRules, CallWish, GrammarWriter, free_text, literal, one_of
from pilotfish.daemon.chat.answers.incoming_text import IncomingText, Steps
from pilotfish.daemon.chat.answers.json_extent import value_of

CALL, CALL_END = "<tool_call>", "</tool_call>"
FUNCTION, FUNCTION_END = "<function=", "</function>"
PARAMETER, PARAMETER_END = "<parameter=", "</parameter>"
MAX_ANY_ORDER = 6  # required arguments, as in llama-server; more have to come as the schema lists them


@dataclass(frozen=True, slots=True)
class TaggedCalls:
    """Values are texts as they stand where the tool's schema says so, else JSON where they are JSON."""

    @property
    def markers(self) -> tuple[str, ...]:
        """Texts of which some models have tokens that are not shown otherwise."""
        return (CALL, CALL_END)

    def grammar(self, writer: GrammarWriter, tools: Sequence[Tool], wish: CallWish) -> CallRules:
        """The rules of calls. Required arguments come first, in any order."""
        end = f"{literal(CALL_END)} space"
        bodies = {tool.name: _Arguments(writer, tool, number).rule() for number, tool in enumerate(tools)}
        functions = one_of(f"{literal(f'{FUNCTION}{name}>')} {body}" for name, body in bodies.items())
        call = writer.rule("call", f'"\\n" {functions} {end}')
        more = f"({literal(CALL)} {call})*" if wish.several else ""
        then = {CALL: writer.rule("calls", f"{call} {more}")}
        for number, (name, body) in enumerate(bodies.items()):
            then[f"{FUNCTION}{name}>"] = writer.rule(f"calls{number}", f"{body} {end} {more}")
        return CallRules(then)

    def read(self, incoming: IncomingText, tools: Mapping[str, Tool]) -> Steps[None]:
        """Read an answer to its end. Some models leave the outer tag out."""
        starts = [CALL, *(f"{FUNCTION}{name}>" for name in tools)]
        calls = 0
        while marker := (yield from incoming.pass_until(starts, Content)):
            if marker != CALL:
                incoming.rest = marker + incoming.rest
                marker = ""
            if not (yield from _call(incoming, tools, calls)):
                marker = marker or incoming.take(1)
                incoming.emit_text(Content, marker)
                continue
            calls += 1
            for end in (FUNCTION_END, CALL_END):
                incoming.take((yield from incoming.past_space()))
                incoming.take(len((yield from incoming.starts_with(end))))
            incoming.take((yield from incoming.past_space()))


class _Arguments:
    """The rules for one tool's arguments."""

    def __init__(self, writer: GrammarWriter, tool: Tool, number: int) -> None:
        self._writer, self._tool, self._name = writer, tool, f"tool{number}"
        required = tool.schema.get("required")
        self._required = [key for key in tool.properties if isinstance(required, list) and key in required]

    def rule(self) -> str:
        """What follows behind a function's name; the name of the rule."""
        arguments = {key: self._argument(key, number) for number, key in enumerate(self._tool.properties)}
        required = self._in_any_order([arguments[key] for key in self._required])
        others = [rule for key, rule in arguments.items() if key not in self._required]
        rest = f"{one_of(others)}*" if others else ""
        return self._writer.rule(self._name, f'"\\n" {required} {rest} {literal(FUNCTION_END)} "\\n"')

    def _argument(self, key: str, number: int) -> str:
        end = f"\n{PARAMETER_END}\n"
        if self._tool.may_be_text(key):
            value = free_text(self._writer, "text-value", {end: self._writer.rule("nothing", '""')}, ends=False)
        else:
            schema = self._writer.schema(f"{self._name}-value{number}", self._tool.properties[key])
            value = f"{schema} {literal(end)}"
        return self._writer.rule(f"{self._name}-argument{number}", f'{literal(f"{PARAMETER}{key}>")} "\\n" {value}')

    def _in_any_order(self, rules: Sequence[str]) -> str:
        if len(rules) > MAX_ANY_ORDER:
            return " ".join(rules)
        left = frozenset(range(len(rules)))
        return self._rest_of(rules, left) if rules else ""

    def _rest_of(self, rules: Sequence[str], left: frozenset[int]) -> str:
        ways = [f"{rules[one]} {self._rest_of(rules, left - {one}) if len(left) > 1 else ''}" for one in sorted(left)]
        return self._writer.rule(f"{self._name}-left{'-'.join(map(str, sorted(left)))}", " | ".join(ways))


def _call(incoming: IncomingText, tools: Mapping[str, Tool], index: int) -> Steps[bool]:
    position = yield from incoming.past_space()
    if not (yield from incoming.starts_with(FUNCTION, position=position)):
        return False
    start = position + len(FUNCTION)
    position = yield from incoming.find(start, ">")
    name = incoming.rest[start:position]
    if name not in tools or position == len(incoming.rest):
        return False
    incoming.take(position + 1)
    incoming.emit(CallStart(index, name))
    yield from _arguments(incoming, tools[name], index)
    return True


def _arguments(incoming: IncomingText, tool: Tool, index: int) -> Steps[None]:
    """Those that are there. Where the answer breaks off, the object is left open: it is not what was meant."""
    opening = "{"
    while True:
        position = yield from incoming.past_space()
        if not (yield from incoming.starts_with(PARAMETER, position=position)):
            break
        incoming.take(position + len(PARAMETER))
        if not (yield from _argument(incoming, tool, index, opening)):
            return
        opening = ","
    closes = yield from incoming.starts_with(FUNCTION_END, CALL_END, position=position)
    if closes or not _may_begin_a_tag(incoming.rest[position:]):
        incoming.emit(CallArguments(index, "{}" if opening == "{" else "}"))


def _may_begin_a_tag(rest: str) -> bool:
    """Whether the answer, which goes no further, may have broken off in a tag."""
    return any(tag.startswith(rest) for tag in (PARAMETER, FUNCTION_END, CALL_END))


def _argument(incoming: IncomingText, tool: Tool, index: int, opening: str) -> Steps[bool]:
    """Read one; False if the answer breaks off in it."""
    start = yield from incoming.find(0, ">")
    key = incoming.rest[:start]
    end = yield from incoming.find(start + 1, PARAMETER_END)
    value, whole = incoming.rest[start + 1 : end], end < len(incoming.rest)
    named = start < len(incoming.rest)
    incoming.take(end + len(PARAMETER_END))
    if whole or (named and tool.is_text(key)):
        shown = _json(value, is_text=tool.is_text(key)) if whole else _open_text(value)
        incoming.emit(CallArguments(index, f"{opening}{json.dumps(key, ensure_ascii=False)}:{shown}"))
    return whole


def _json(value: str, *, is_text: bool) -> str:
    """The value as JSON. One line break on either side belongs to the tags."""
    value = value.removeprefix("\n").removesuffix("\n")
    if not is_text and (value.strip() == "null" or value_of(value) is not None):
        return value.strip()
    return json.dumps(value, ensure_ascii=False)


def _open_text(value: str) -> str:
    """The beginning of a text whose end is missing, without what may be the beginning of the tag."""
    end = f"\n{PARAMETER_END}"
    length = next((n for n in range(len(end), 0, -1) if value.endswith(end[:n])), 0)
    return json.dumps(value[: len(value) - length].removeprefix("\n"), ensure_ascii=False)[:-1]
