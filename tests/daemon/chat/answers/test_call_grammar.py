"""What the grammars of calls let through: any text, until a call has begun; then only what the schemas allow."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from pilotfish.daemon.chat.answers.answer_format import CALL_FORMATS, AnswerReading
from pilotfish.daemon.chat.answers.call_grammar import constraint
from pilotfish.daemon.chat.answers.called_tools import Tool
from pilotfish.daemon.chat.answers.grammar_writer import CallWish, GrammarWriter, free_text
from pilotfish.daemon.chat.answers.reasoning import ReasoningTags
from pilotfish.hooks.types import SamplingParams
from pilotfish.plugins._cells.grammar import checked, grammar_of
from tests.daemon.chat.answers.written import TOOLS, WRITTEN
from tests.plugins._cells.grammar_walk import Grammars, grammars_over_bytes

pytestmark = pytest.mark.model

THINK = ReasoningTags("<think>\n", "\n</think>\n\n")
HELD = [
    calls for calls in WRITTEN if calls != "llama"
]  # Llama's begin like any object, and are held when there must be one


@pytest.fixture(scope="module")
def grammars(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Grammars]:
    with grammars_over_bytes(tmp_path_factory.mktemp("grammars")) as made:
        yield made


@pytest.fixture
def accepts(grammars):
    """`accepts(text, calls, ...)`: whether the model could give exactly that answer."""

    def accepted(text, calls, *, required=False, several=True, tools=TOOLS, **more):
        held = constraint(AnswerReading(calls, tools=tools, **more), CallWish(required, several))
        schemas = tuple((name, json.dumps(schema)) for name, schema in held.schemas.items())
        grammar = grammar_of(SamplingParams(grammar=held.grammar, schemas=schemas))
        checked(grammar, nested=True)
        with grammars.walk(grammar) as walk:
            return walk.accepts(text)

    return accepted


def written(calls):
    text = WRITTEN[calls].replace("}; {", "}, {")
    return text.removesuffix("<|call|>").partition("<|call|>")[0] if calls == "channels" else text


@pytest.mark.parametrize("calls", HELD)
def test_what_models_write_is_let_through(accepts, calls):
    assert accepts(written(calls), calls)
    assert accepts(written(calls), calls, required=True)
    assert accepts("Just an answer. <b>{x: [1]}", calls)
    assert not accepts("Just an answer.", calls, required=True)


@pytest.mark.parametrize("calls", [calls for calls in HELD if calls != "tagged"])
def test_arguments_keep_to_the_schema(accepts, calls):
    assert not accepts(written(calls).replace('"Paris"', "7"), calls)
    assert not accepts(written(calls).replace('"days": 3', '"nights": 3'), calls)


def test_names_keep_to_the_tools(accepts):
    for calls in HELD:
        assert not accepts(written(calls).replace("weather", "whether"), calls)


def test_a_call_of_llama_is_held_where_there_has_to_be_one(accepts):
    assert accepts(written("llama"), "llama", required=True)
    assert not accepts(written("llama").replace('"Paris"', "7"), "llama", required=True)
    assert constraint(AnswerReading("llama", tools=TOOLS), CallWish()).grammar == ""


def test_one_call_where_only_one_is_wanted(accepts):
    one, more = written("mistral-named").partition("[TOOL_CALLS]time")[0], written("mistral-named")
    assert accepts(one, "mistral-named", several=False)
    assert not accepts(more, "mistral-named", several=False)


def test_tagged_arguments(accepts):
    def call(*arguments):
        inner = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in arguments)
        return f"<tool_call>\n<function=weather>\n{inner}</function>\n</tool_call>"

    assert accepts(call(("city", 'any\ntext </parameter> "it" {likes}')), "tagged")
    assert accepts(call(("city", "P"), ("days", 3)), "tagged")
    assert not accepts(call(("days", 3), ("city", "P")), "tagged"), "required ones come first"
    assert not accepts(call(("city", "P"), ("days", "three")), "tagged")
    assert not accepts(call(), "tagged"), "one is required"
    assert accepts(call(("city", "P")).removeprefix("<tool_call>\n"), "tagged"), "some models leave it out"


def test_required_tagged_arguments_come_in_any_order(accepts):
    numbers = {name: {"type": "integer"} for name in "abc"}
    tool = Tool("f", "", {"type": "object", "properties": numbers, "required": ["a", "b", "c"]})
    for order in ("abc", "cba", "bca"):
        inner = "".join(f"<parameter={key}>\n1\n</parameter>\n" for key in order)
        assert accepts(f"<tool_call>\n<function=f>\n{inner}</function>\n</tool_call>", "tagged", tools=(tool,))
    assert not accepts(
        "<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>", "tagged", tools=(tool,)
    )


@pytest.mark.parametrize("begun", ["", "<think>\n", "<think>\n\n</think>\n\n"])
def test_what_is_thought_is_free(accepts, begun):
    call = written("hermes").removeprefix("So.")
    thought = "I could <tool_call> somebody.\n</think>\n\n"
    if begun.strip().endswith("</think>"):
        assert accepts(call, "hermes", reasoning=THINK, begun=begun, required=True)
        assert not accepts(thought + call, "hermes", reasoning=THINK, begun=begun)
    else:
        opening = "" if begun else "<think>\n"
        assert accepts(opening + thought + call, "hermes", reasoning=THINK, begun=begun, required=True)
        assert not accepts(opening + thought + "Done.", "hermes", reasoning=THINK, begun=begun, required=True)
        assert accepts(opening + "I could <tool_call> some", "hermes", reasoning=THINK, begun=begun), "cut off"


@pytest.mark.parametrize("word", ["aab", "abab", "<<|x|>>", "a-]^[b", 'q"\\', "é|ü"])
def test_free_text_goes_up_to_the_word(grammars, word):
    writer = GrammarWriter()
    then = writer.rule("then", '"!"')
    writer.rule("root", free_text(writer, "text", {word: then}, ends=True))
    for text, good in (
        ("", True), (word, False), (f"{word}!", True), (f"{word}?", False), (f"{word[:-1]}{word}!", True),
        (f"x{word[0]}{word}!", True), (word[:-1], True), (f"{word}!x", False), ("?]^-[", True),
    ):  # fmt: skip
        with grammars.walk(writer.text()) as walk:
            assert walk.accepts(text) is (good and (word not in text.removesuffix(f"{word}!"))), text


def test_every_format_says_what_it_holds_calls_to():
    for calls in CALL_FORMATS:
        assert constraint(AnswerReading(calls, tools=TOOLS), CallWish(required=True)).grammar, calls
    assert constraint(AnswerReading("hermes"), CallWish()).grammar == "", "without tools there is nothing to keep to"
