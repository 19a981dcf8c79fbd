"""Chat templates: what they may use, what they may not, what is done for messages they have no place for."""

from __future__ import annotations

import re
from datetime import datetime

import pytest

from pilotfish.daemon.chat.chat_template import CHATML, ChatTemplate, Conversation
from pilotfish.daemon.lab.fakes.fake_engine import FakeTokenizer
from pilotfish.hooks.errors import RequestError, UnsupportedRequest
from pilotfish.hooks.types import TokenizerPin

HI = [{"role": "user", "content": "hi"}]
PLAIN = "{% for m in messages %}[{{ m.role }}:{{ m.content }}]{% endfor %}"


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


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("first\n{% nosuch %}", "line 2: Encountered unknown tag 'nosuch'"),
        ("{% for %}", "line 1: "),
        ("{% if true %}" * 200 + "{% endif %}" * 200, "IndentationError: too many levels of indentation"),
    ],
)
def test_a_template_that_is_none_says_where_when_a_chat_is_asked_for(source, says):
    template = ChatTemplate(source)  # the model loads: prompts rendered elsewhere need no template
    with pytest.raises(UnsupportedRequest, match="cannot be compiled") as refusal:
        template.render(Conversation(HI))
    assert says in str(refusal.value)


def test_generation_tags_change_nothing():
    source = "{% for m in messages %}{% generation %}{% set last = m.role %}<{{ m.content }}>{% endgeneration %}"
    assert render(source + "{{ last }}{% endfor %}") == "<hi>user"


def test_the_date_is_known_in_both_of_llama_servers_forms():
    before = datetime.now()
    text = render("{{ date_string }}|{{ datetime }}|{{ strftime_now('%Y') }}")
    days = (before, datetime.now())  # midnight may come in between
    assert text in [f"{day:%d %b %Y}|{day:%b %d %Y}|{day:%Y}" for day in days]


def test_a_request_may_say_which_day_it_is():
    conversation = Conversation(HI, extra={"date_string": "1 Jan 1970"})
    assert ChatTemplate("{{ date_string }}").render(conversation) == "1 Jan 1970"


DEFAULT_SYSTEM = "{% if messages[0].role != 'system' %}[default]{% endif %}" + PLAIN


@pytest.mark.parametrize(
    ("source", "prompt"),
    [
        (DEFAULT_SYSTEM, "[system:be brief][user:hi]"),
        (PLAIN + "{# <|channel|> #}", "[developer:be brief][user:hi]"),
    ],
)
def test_a_developer_is_the_system_unless_the_model_knows_the_difference(source, prompt):
    assert render(source, [{"role": "developer", "content": "be brief"}, *HI]) == prompt


REFUSES_SYSTEM = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
IGNORES_SYSTEM = "{% for m in messages if m.role != 'system' %}[{{ m.role }}:{{ m.content }}]{% endfor %}"
BRIEF = {"role": "system", "content": "be brief"}


@pytest.mark.parametrize("source", [REFUSES_SYSTEM + PLAIN, IGNORES_SYSTEM], ids=["refuses", "ignores"])
@pytest.mark.parametrize(
    ("messages", "prompt"),
    [
        ([BRIEF, *HI], "[user:be brief\nhi]"),
        ([BRIEF, {"role": "developer", "content": "in French"}, *HI], "[user:be brief\nin French\nhi]"),
        ([*HI, BRIEF, *HI], "[user:hi][user:be brief\nhi]"),
        ([BRIEF], ""),
        ([*HI, BRIEF], "[user:hi]"),
        (HI, "[user:hi]"),
    ],
)
def test_a_system_message_without_a_place_leads_the_next_user_message(source, messages, prompt):
    assert render(source, messages) == prompt


def test_a_template_with_a_place_for_system_messages_gets_them_as_they_are():
    assert render(PLAIN, [BRIEF, *HI]) == "[system:be brief][user:hi]"


@pytest.mark.parametrize(("add_bos", "prompt"), [(True, "hi"), (False, "<s>hi")])
def test_bos_is_not_doubled(add_bos, prompt):
    assert render("{{ bos_token }}{{ messages[0].content }}", bos="<s>", add_bos=add_bos) == prompt


def test_a_model_without_a_template_gets_chatml_and_its_own_special_texts():
    pin = TokenizerPin("f", "llama", 10, bos=2, eos=1)
    template = ChatTemplate.of_model("", pin, FakeTokenizer({2: b"<s>", 1: b"</s>"}, frozenset({1})))
    assert (template.source, template.bos, template.eos) == (CHATML, "<s>", "</s>")


def test_an_answer_goes_on_where_the_last_message_stopped_even_if_the_template_trims():
    messages = [*HI, {"role": "assistant", "content": " so "}]
    template = ChatTemplate("{% for m in messages %}<{{ m.content | trim }}>{% endfor %}A:")
    rendered = template.rendered(Conversation(messages, continues=True))
    assert (rendered.prompt, rendered.begun) == ("<hi>A: so ", " so ")
