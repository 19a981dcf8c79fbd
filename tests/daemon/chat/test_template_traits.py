"""What templates can show is found out by having them show it."""

from __future__ import annotations

import pytest

from pilotfish.daemon.chat.answers.called_tools import Tool
from pilotfish.daemon.chat.chat_template import CHATML, ChatTemplate, Conversation
from tests.daemon.chat.family_templates import (
    CHANNELS,
    FAMILIES,
    HERMES,
    LLAMA,
    MISTRAL_IDS,
    OPEN_TAG,
    TAGGED,
    TAGGED_THINKING,
    THINKING,
)

HI = [{"role": "user", "content": "hi"}]
TOOL = Tool("f", "does f", {"type": "object", "properties": {"x": {"type": "string"}}})
CALL = {"type": "function", "function": {"name": "f", "arguments": '{"x": "1"}'}, "id": "abcdef123"}
CALLED = [*HI, {"role": "assistant", "content": "", "tool_calls": [CALL]}]


@pytest.mark.parametrize("calls", FAMILIES)
def test_calls_that_the_template_writes_can_be_read_back(calls):
    traits = ChatTemplate(FAMILIES[calls]).traits
    assert (traits.calls, traits.shows_tools) == (calls, True)
    assert traits.parallel_calls is (calls not in ("llama", "channels"))  # which show one call a message


@pytest.mark.parametrize(
    "source",
    [
        CHATML,
        HERMES.replace('{"name": "', '{"called": "'),  # shows calls, but not as models of this family write them
        HERMES.replace("m.tool_calls", "m.nothing"),
        TAGGED.replace("<parameter=' + k", "<argument=' + k"),
    ],
)
def test_calls_that_cannot_be_read_back_are_not_known(source):
    assert ChatTemplate(source).traits.calls == ""


def test_arguments_are_handed_over_as_the_template_takes_them():
    as_text = HERMES.replace("c.function.arguments | tojson", "c.function.arguments")
    for source in (HERMES, as_text):
        prompt = ChatTemplate(source).render(Conversation([*CALLED, {"role": "tool", "content": "7"}]))
        assert '{"name": "f", "arguments": {"x": "1"}}' in prompt


@pytest.mark.parametrize(
    ("source", "tags"),
    [
        (THINKING, ("<think>\n", "\n</think>\n\n")),
        (OPEN_TAG, ("<think>", "</think>")),
        (CHATML, None),
        (CHATML + "{# <think></think> #}", None),
        ("{% if enable_thinking %}<think>{% endif %}", ("<think>", "</think>")),
    ],
)
def test_reasoning_stands_between_the_tags_that_the_template_writes(source, tags):
    found = ChatTemplate(source).traits.reasoning
    assert (found and (found.start, found.end)) == tags


@pytest.mark.parametrize(
    ("source", "thinks", "begun"),
    [
        (THINKING, True, ""),
        (THINKING, False, "<think>\n\n</think>\n\n"),
        (OPEN_TAG, True, "<think>\n"),
        (TAGGED_THINKING, True, "<think>\n"),
        (TAGGED_THINKING, False, "<think>\n\n</think>\n\n"),
        (CHATML, True, ""),
    ],
)
def test_what_a_prompt_has_begun_belongs_to_the_answer(source, thinks, begun):
    rendered = ChatTemplate(source).rendered(Conversation(HI, enable_thinking=thinks))
    assert rendered.begun == begun
    assert rendered.prompt.endswith(begun)


@pytest.mark.parametrize(
    ("source", "last", "prompt"),
    [
        (THINKING, {"content": "So"}, "assistant\n<think>\n\n</think>\n\nSo"),
        (THINKING, {"content": "So", "reasoning_content": "Hm."}, "assistant\n<think>\nHm.\n</think>\n\nSo"),
        (THINKING, {"content": "", "reasoning_content": "Hm."}, "assistant\n<think>\nHm."),
        (CHANNELS, {"content": "So", "reasoning_content": "Hm."},
            "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>So"),
        (CHATML, {"content": "So"}, "assistant\nSo"),
    ],
)  # fmt: skip
def test_what_was_thought_is_continued_too(source, last, prompt):
    messages = [*HI, {"role": "assistant", **last}]
    assert ChatTemplate(source).render(Conversation(messages, continues=True)).endswith(prompt)


def test_tools_have_the_form_of_openai_whatever_a_client_left_out():
    prompt = ChatTemplate("{{ tools | tojson }}").render(Conversation(HI, tools=(Tool("f"),)))
    assert prompt == '[{"type": "function", "function": {"name": "f", "description": "", "parameters": {}}}]'


def test_contents_in_parts_go_to_templates_that_know_parts():
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    by_part = (
        "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}"
        "{% for p in m.content %}<{{ p.text }}>{% endfor %}{% endif %}{% endfor %}"
    )
    assert ChatTemplate(by_part).render(Conversation([{"role": "user", "content": parts}])) == "<a><b>"
    assert (
        ChatTemplate("{{ messages[0].content }}").render(Conversation([{"role": "user", "content": parts}])) == "a\nb"
    )


def test_options_are_known_under_all_of_their_names():
    source = "{{ preserve_thinking }} {{ clear_thinking }} {{ reasoning_strength }} {{ documents }}"
    extra = {"preserve_reasoning": True, "reasoning_effort": "low", "documents": ["d"]}
    assert ChatTemplate(source).render(Conversation(HI, extra=extra)) == "True False low ['d']"


def test_whitespace_behind_the_marker_belongs_to_it():
    assert [ChatTemplate(source).traits.call_space for source in (HERMES, TAGGED, CHATML)] == ["\n", "", ""]
    tight = HERMES.replace("<tool_call>\\n", "<tool_call>")
    assert ChatTemplate(tight).traits.call_space == ""


def test_what_gpt_oss_thought_stands_in_the_place_of_a_content():
    turn = {"role": "assistant", "content": "", "reasoning_content": "Hm.", "tool_calls": [CALL]}
    prompt = ChatTemplate(CHANNELS).render(Conversation([*HI, turn, {"role": "tool", "content": "7"}]))
    assert "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant to=functions.f" in prompt


def test_a_finished_channel_is_not_the_end_of_all():
    messages = [*HI, {"role": "assistant", "content": "So."}]
    prompt = ChatTemplate(CHANNELS).render(Conversation(messages, add_generation_prompt=False))
    assert prompt.endswith("<|channel|>final<|message|>So.<|end|>")


def test_a_template_that_refuses_what_is_tried_shows_nothing():
    traits = ChatTemplate("{{ raise_exception('no') }}<tool_call></tool_call><think></think>").traits
    assert (traits.calls, traits.shows_tools, traits.reasoning, traits.takes_parts) == ("", False, None, False)


def test_ids_of_calls_that_a_template_checks():
    prompt = ChatTemplate(MISTRAL_IDS).render(
        Conversation([*CALLED, {"role": "tool", "content": "7", "tool_call_id": "abcdef123"}])
    )
    assert "[TOOL_CALLS]f[CALL_ID]abcdef123[ARGS]" in prompt


def test_llamas_tools_and_results():
    prompt = ChatTemplate(LLAMA).render(Conversation([*CALLED, {"role": "tool", "content": "7"}], tools=(TOOL,)))
    assert '{"name": "f", "parameters": {"x": "1"}}<|eot_id|>' in prompt
    assert "<|start_header_id|>ipython<|end_header_id|>\n\n7<|eot_id|>" in prompt
