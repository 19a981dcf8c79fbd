"""Answers are taken apart into reasoning, content and calls, however they arrive and wherever they end."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pilotfish.daemon.chat.answers.answer_events import AnswerMessage
from pilotfish.daemon.chat.answers.answer_format import CALL_FORMATS, AnswerReading, call_format_of, whole
from pilotfish.daemon.chat.answers.reasoning import ReasoningTags
from tests.daemon.chat.answers.written import CALLS, TOOLS, WRITTEN, read
from tests.daemon.chat.family_templates import FAMILIES

THINK = ReasoningTags("<think>\n", "\n</think>\n\n")
# Every marker and what surrounds it, so that hypothesis meets them whole, cut and out of place.
PIECES = [
    *{marker for calls in CALL_FORMATS.values() for marker in calls.markers},
    *("<think>", "</think>", "[THINK]", "<function=weather>", "<parameter=city>", "</parameter>", "</function>"),
    *("weather", "time", '{"name": "weather", ', '"arguments": ', '{"city": "P"}', "{}", "{", "}", "[", "]", '"', "\\"),
    *(
        " to=functions.weather",
        "<|call|>",
        "analysis",
        "final",
        "commentary",
        "\n",
        " ",
        "text",
        "```json",
        "[ARGS]",
        "é",
    ),
]


def test_every_format_has_an_example():
    assert WRITTEN.keys() == CALL_FORMATS.keys()


@pytest.mark.parametrize("calls", WRITTEN)
def test_calls_are_told_from_content(calls):
    message = read(WRITTEN[calls], calls)
    assert message.content == "So."
    assert [(call.name, json.loads(call.arguments)) for call in message.calls] == [
        (call.name, json.loads(call.arguments)) for call in CALLS
    ]


def test_ids_that_the_model_gives_are_kept():
    for calls in ("mistral-list", "mistral-ids"):
        assert [call.id for call in read(WRITTEN[calls], calls).calls] == ["abcdef123", "abcdef456"]


@pytest.mark.parametrize("calls", WRITTEN)
def test_reasoning_before_calls(calls):
    if calls == "channels":
        message = read("<|channel|>analysis<|message|>Hm.\n<|end|><|start|>assistant" + WRITTEN[calls], calls)
    else:
        message = read("<think>\nHm.\n</think>\n\n" + WRITTEN[calls], calls, reasoning=THINK)
    assert (message.reasoning, message.content, len(message.calls)) == ("Hm.\n", "So.", 2)


def parsed_in(pieces, calls, reasoning):
    """The message after every piece, and at the end."""
    parser, events = AnswerReading(calls, reasoning, TOOLS).parser()
    message = AnswerMessage()
    message.add(events)
    for piece in pieces:
        message.add(parser.feed(piece))
    message.add(parser.finish())
    return message


@settings(max_examples=300, deadline=None)
@given(
    text=st.lists(st.sampled_from(PIECES), max_size=14).map("".join) | st.sampled_from(sorted(WRITTEN.values())),
    cuts=st.lists(st.integers(0, 400), max_size=12),
    calls=st.sampled_from(["", *CALL_FORMATS]),
    reasoning=st.sampled_from([None, THINK]),
)
def test_the_pieces_in_which_an_answer_comes_change_nothing(text, cuts, calls, reasoning):
    places = sorted({min(cut, len(text)) for cut in cuts} | {0, len(text)})
    pieces = [text[start:end] for start, end in pairwise(places)]
    assert (
        parsed_in(pieces, calls, reasoning) == parsed_in([text], calls, reasoning) == parsed_in(text, calls, reasoning)
    )


@pytest.mark.parametrize("calls", WRITTEN)
def test_every_place_in_which_an_answer_is_cut(calls):
    text = WRITTEN[calls]
    whole = read(text, calls)
    assert read(list(text), calls) == whole
    for place in range(len(text)):
        assert read([text[:place], text[place:]], calls) == whole
        assert read(list(text[:place]), calls) == read(text[:place], calls)


@settings(max_examples=200, deadline=None)
@given(calls=st.sampled_from(list(WRITTEN)), length=st.integers(0, 300))
def test_an_answer_that_breaks_off_has_the_beginning_of_what_it_would_have_had(calls, length):
    full, cut = read(WRITTEN[calls], calls), read(WRITTEN[calls][:length], calls)
    assert len(cut.calls) <= len(full.calls)
    for begun, call in zip(cut.calls, full.calls, strict=False):
        assert call.name == begun.name
        assert call.arguments.startswith(begun.arguments)


@settings(max_examples=200, deadline=None)
@given(value=st.text(max_size=40) | st.sampled_from(["</tool_call>", "\\", '"}', "[TOOL_CALLS]", "{", "<|end|>"]))
def test_any_text_may_stand_in_an_argument(value):
    arguments = json.dumps({"city": value}, ensure_ascii=False)
    for calls, before, after in (
        ("hermes", '<tool_call>{"name": "weather", "arguments": ', "}</tool_call>"),
        ("llama", '{"name": "weather", "parameters": ', "}"),
        ("mistral-named", "[TOOL_CALLS]weather[ARGS]", ""),
        ("mistral-list", '[TOOL_CALLS][{"name": "weather", "arguments": ', ', "id": "123456789"}]'),
        ("deepseek", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜>", "<｜tool▁call▁end｜>"),
        ("channels", "<|channel|>commentary to=functions.weather<|message|>", "<|call|>"),
    ):
        message = read(before + arguments + after, calls)
        assert [json.loads(call.arguments) for call in message.calls] == [{"city": value}], calls
        assert message.content == ""


@pytest.mark.parametrize(
    ("calls", "text"),
    [
        ("hermes", "<tool_call>not JSON</tool_call>"),
        ("hermes", '<tool_call>\n{"name": "unknown", "arguments": {}}\n</tool_call>'),
        ("hermes", '<tool_call>{"arguments": {}}</tool_call>'),
        ("hermes", '<tool_call>{"name": "weather" "arguments"}'),
        ("llama", '{"name": "somebody", "age": 7}'),
        ("llama", "for (;;) { print(); }"),
        ("llama", '{"name": "weather", "hobbies": []}'),
        ("mistral-named", "[TOOL_CALLS]unknown[ARGS]{}"),
        ("mistral-list", "[TOOL_CALLS][1, 2]"),
        ("deepseek", "<｜tool▁calls▁begin｜>nothing"),
        ("tagged", "<tool_call>\n<function=unknown>\n</function>\n</tool_call>"),
        ("tagged", "#include <functional> and <function=x>"),
    ],
)
def test_what_is_no_call_stays_content(calls, text):
    message = read(text, calls)
    assert (message.content, message.calls) == (text, [])


@pytest.mark.parametrize(("calls", "piece"), [("hermes", '<tool_call>{"a":"'), ("llama", '{"type":'), ("llama", '{"')])
def test_what_never_ends_is_content(calls, piece):
    text = piece * 2_000
    assert read(text, calls).content == text


def test_an_argument_that_breaks_off_is_no_whole_object():
    text = WRITTEN["tagged"][: WRITTEN["tagged"].index("ris")]
    (call,) = read(text, "tagged").calls
    assert call.arguments == '{"city":"Pa'


def test_values_in_tags_have_the_types_of_the_schema():
    text = "<tool_call>\n<function=weather>\n<parameter=city>\n75\n</parameter>\n<parameter=days>\n3\n</parameter>\n"
    text += '<parameter=more>\n{"a": [1]}\n</parameter>\n<parameter=other>\na "b"\nc\n</parameter>\n</function>\n'
    (call,) = read(text + "</tool_call>", "tagged").calls
    assert json.loads(call.arguments) == {"city": "75", "days": 3, "more": {"a": [1]}, "other": 'a "b"\nc'}


@pytest.mark.parametrize(
    ("text", "reasoning", "content"),
    [
        ("<think>\nHm.\n</think>\n\nHi.", "Hm.\n", "Hi."),
        ("\n<think>Hm.</think>Hi.", "Hm.", "Hi."),
        ("<think>\n\n</think>\n\nHi.", "", "Hi."),
        ("<think>\nHm", "Hm", ""),
        ("Hi. <think>x</think>", "", "Hi. <think>x</think>"),
        ("<think>a <tool_call> b</think>c", "a <tool_call> b", "c"),
    ],
)
def test_reasoning_stands_at_the_beginning(text, reasoning, content):
    message = read(text, "hermes", reasoning=THINK)
    assert (message.reasoning, message.content) == (reasoning, content)


def test_reasoning_that_the_prompt_has_begun():
    assert read("Hm.</think>Hi.", reasoning=THINK, begun="<think>\n").reasoning == "Hm."
    assert read("Hi.", reasoning=THINK, begun="<think>\n\n</think>\n\n") == AnswerMessage("Hi.")
    as_content = read("Hm.</think>Hi.", reasoning=THINK, begun="<think>\n", thoughts=False)
    assert as_content == AnswerMessage("<think>\nHm.</think>Hi.")


def test_a_call_may_cut_reasoning_off_where_the_model_is_known_to_do_so():
    tags = ReasoningTags("<think>", "</think>", ("<tool_call>",))
    message = read("<think>Hm." + WRITTEN["tagged"].removeprefix("So."), "tagged", reasoning=tags)
    assert (message.reasoning, message.content, len(message.calls)) == ("Hm.", "", 2)


def test_nothing_is_called_without_tools():
    for calls in CALL_FORMATS:
        message = AnswerMessage()
        message.add(whole(AnswerReading(calls), [WRITTEN[calls]]))
        assert message.calls == []
        if calls == "channels":
            assert message.content.startswith("So.<|channel|>commentary to=functions.weather")
        else:
            assert message.content == WRITTEN[calls]


@settings(max_examples=300, deadline=None)
@given(
    text=st.lists(st.sampled_from(PIECES), max_size=14).map("".join),
    calls=st.sampled_from([calls for calls in CALL_FORMATS if calls != "channels"]),
)
@example(text='{"<|python_tag|>', calls="llama")
def test_nothing_is_lost_of_what_is_no_call(text, calls):
    message = AnswerMessage()
    message.add(whole(AnswerReading(calls), [text]))
    assert message.content == text.lstrip(" \t\r\n").replace("<|python_tag|>" if calls == "llama" else "\0", "")


def test_messages_of_channels():
    text = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Hi.<|return|>"
    assert read(text, "channels") == AnswerMessage("Hi.", "Hm.")
    raw = read(text, "channels", thoughts=False)
    assert raw.content == "<|channel|>analysis<|message|>Hm.<|end|>Hi."
    assert read("plain", "channels").content == "plain"


@pytest.mark.parametrize("calls", FAMILIES)
def test_a_format_is_told_from_the_template(calls):
    assert call_format_of(FAMILIES[calls]) == calls


@pytest.mark.parametrize("source", ["", "{{ messages }}", "<tool_call></tool_call><arg_key>", "<|start_header_id|>"])
def test_other_templates_have_no_known_format(source):
    assert call_format_of(source) == ""
