"""Chat templates: what they may use, what they may not, and where the prompt ends."""

from __future__ import annotations

import re

import pytest

from pilotfish.daemon.chat_template import CHATML, ChatTemplate, Conversation
from pilotfish.hooks.errors import BrokenModel, RequestError
from pilotfish.hooks.types import TokenizerPin
from tests.fakes.engine import FakeTokenizer

HI = [{"role": "user", "content": "hi"}]


def render(source, messages=HI, **template):
    return ChatTemplate(source, **template).render(Conversation(messages))


def test_chatml():
    assert render(CHATML) == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"


def test_block_tags_leave_no_blank_lines():
    source = "{% for m in messages %}\n  {% if true %}\n{{ m.content }}\n  {% endif %}\n{% endfor %}\n"
    assert render(source) == "hi\n"


def test_what_templates_expect_is_there():
    source = "{{ bos_token }}|{{ messages | tojson }}|{{ strftime_now('%Y') }}|{{ tools is none }}|{% break %}"
    source = source.replace("{% break %}", "{% for m in messages %}{% break %}{% endfor %}")
    text = render(source, bos="<s>")
    assert re.fullmatch(r'<s>\|\[\{"role": "user", "content": "hi"\}\]\|\d{4}\|True\|', text)


def test_a_template_may_refuse_in_its_own_words():
    with pytest.raises(RequestError, match="roles must alternate"):
        render("{{ raise_exception('roles must alternate') }}")


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages.__class__.__mro__ }}",
        "{{ ''.__class__.__base__.__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{{ messages[7].content.x }}",
        "{{ 1 / 0 }}",
        "{% for i in range(10**9) %}x{% endfor %}",
        "{{ undefined_function() }}",
    ],
)
def test_a_hostile_or_faulty_template_fails_as_a_request(source):
    with pytest.raises(RequestError, match="chat template"):
        render(source)


def test_a_template_that_cannot_be_compiled_is_a_broken_model():
    with pytest.raises(BrokenModel, match="pull the model again"):
        ChatTemplate("{% for %}")


@pytest.mark.parametrize(("add_bos", "prompt"), [(True, "hi"), (False, "<s>hi")])
def test_bos_is_not_doubled(add_bos, prompt):
    assert render("{{ bos_token }}{{ messages[0].content }}", bos="<s>", add_bos=add_bos) == prompt


def test_a_model_without_a_template_gets_chatml_and_its_own_special_texts():
    pin = TokenizerPin("f", "llama", 10, bos=2, eos=1)
    template = ChatTemplate.of_model("", pin, FakeTokenizer({2: b"<s>", 1: b"</s>"}, frozenset({1})))
    assert (template.source, template.bos, template.eos) == (CHATML, "<s>", "</s>")


def test_a_template_that_trims_can_still_be_continued():
    conversation = Conversation([{"role": "assistant", "content": " so "}], " so ", False)
    assert ChatTemplate("<{{ messages[-1].content | trim }}>").render(conversation) == "<so"
