"""A grammar under which an answer is free until it calls a tool, and then keeps to that tool's schema.

llama-server has grammars that wait for a word. Here the grammar itself lets every text pass until that word: under
both, exactly the same tokens may come next, and the model's own choice is only replaced where it breaks the rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pilotfish.daemon.chat.answers.answer_format import CALL_FORMATS, AnswerReading
from pilotfish.daemon.chat.answers.grammar_writer import CallRules, CallWish, GrammarWriter, free_text, literal


@dataclass(frozen=True, slots=True)
class Constraint:
    """GBNF, and JSON schemas by the names under which it refers to them. Empty where nothing is held to anything."""

    grammar: str = ""
    schemas: Mapping[str, Any] = field(default_factory=dict)

    def fields(self) -> dict[str, Any]:
        """The fields of a completion."""
        return {"grammar": self.grammar, "grammar_schemas": dict(self.schemas)} if self.grammar else {}


def constraint(reading: AnswerReading, wish: CallWish) -> Constraint:
    """What the answer must keep to."""
    if not reading.tools or not reading.calls:
        return Constraint()
    writer = GrammarWriter()
    calls = CALL_FORMATS[reading.calls].grammar(writer, reading.tools, wish)
    if calls is None:
        return Constraint()
    text = free_text(writer, "text", calls.then, ends=not wish.required, begun=calls.begun)
    thoughts = _with_thoughts(writer, reading, calls, text, ends=not wish.required)
    writer.rule("root", thoughts)
    return Constraint(writer.text(), writer.schemas)


def _with_thoughts(writer: GrammarWriter, reading: AnswerReading, calls: CallRules, text: str, *, ends: bool) -> str:
    """What is thought before is free, too, and no call begins in it."""
    if reading.reasoning is None:
        return text
    start, end = reading.reasoning.start.strip(), reading.reasoning.end.strip()
    if end in reading.begun:
        return text
    then = {end: text} | {word: calls.then[word] for word in reading.reasoning.cut_by if word in calls.then}
    thought = free_text(writer, "thought", then, ends=ends)
    if start in reading.begun:
        return thought
    lead = writer.rule("lead", rf"[ \n] lead | {literal(start)} {thought}")
    return f"{lead} | {text}"
