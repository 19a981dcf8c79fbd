"""Prompts are refused before anything is generated where their answers would say nothing."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from pilotfish.daemon.lab.fakes import FakeEngine, fake_pin
from pilotfish.daemon.lab.fakes.fake_engine import FakeTokenizer
from pilotfish.daemon.lab.prompt_beginnings import PromptBeginning
from pilotfish.daemon.lab.validation.checked_prompts import AskedPrompt, checked, load_prompts, refusals_of_texts
from pilotfish.hooks.errors import UsageError
from tests.daemon.lab.fake_subject import subject

BY_TEMPLATE = PromptBeginning("<bos>", by_tokenizer=False, by_template=True)
BY_TOKENIZER = PromptBeginning("<bos>", by_tokenizer=True, by_template=True)
CHATML = PromptBeginning("<|im_start|>", by_tokenizer=False, by_template=False)


def raw(text):
    return [AskedPrompt("p", text, raw=True)]


@pytest.mark.parametrize(
    ("text", "beginning", "words"),
    [
        ("Say 3.", BY_TEMPLATE, "does not begin with <bos>"),
        ("<bos>Say 3.", BY_TEMPLATE, ""),
        ("Say 3.", BY_TOKENIZER, ""),
        ("<bos>Say 3.", BY_TOKENIZER, "begins with <bos> twice"),
        ("<bos><bos>Say 3.", BY_TEMPLATE, "begins with <bos> twice"),
        ("Say 3.", CHATML, ""),
        ("", CHATML, "empty"),
    ],
)
def test_raw_prompts_are_checked_without_loading_anything(text, beginning, words):
    found = "; ".join(refusals_of_texts(raw(text), beginning))
    assert (words in found) if words else found == ""


def test_the_explanation_says_what_follows_and_what_to_do():
    (why,) = refusals_of_texts(raw("Say 3."), BY_TEMPLATE)
    assert "repetitions" in why
    assert why.endswith("begin it with <bos>")


class DropsBos(FakeTokenizer):
    """Forgets the first token, whatever it is."""

    def encode(self, text, *, add_special=True, parse_special=True):
        return [3, 4, 5]


def loaded(bos=2, n_ctx=64, tokenizer=None):
    pin = fake_pin()
    found = subject(FakeEngine(n_ctx=n_ctx), replace(pin, tokenizer=replace(pin.tokenizer, bos=bos)))
    if tokenizer:
        found.engine.tokenizer = tokenizer
    return found


def test_a_tokenizer_that_drops_bos_is_found_by_the_ids():
    dropping = loaded(tokenizer=DropsBos({}, frozenset()))
    with pytest.raises(UsageError, match=r"nothing was run: p: it does not begin with <bos>"):
        checked(dropping, raw("<bos>Say 3."), BY_TEMPLATE, 8)


def test_a_prompt_that_does_not_fit_is_refused_with_the_sum():
    with pytest.raises(UsageError, match="9 tokens and 60 of answer do not fit a context of 64"):
        checked(loaded(bos=None), [AskedPrompt("p", "one two three four five six seven eight")], CHATML, 60)


def test_every_bad_prompt_is_named():
    prompts = [AskedPrompt("a", "x " * 70), AskedPrompt("b", "y " * 70)]
    with pytest.raises(UsageError, match=r"a: .*; b: "):
        checked(loaded(bos=None), prompts, CHATML, 8)


def test_a_raw_prompt_outside_the_template_is_remarked():
    found = checked(loaded(bos=None), raw("Say 3."), CHATML, 8)
    assert "outside the model's chat template" in found.remarks[0]


def test_a_file_may_hold_chats_raw_prompts_or_both(tmp_path):
    path = tmp_path / "prompts.json"
    path.write_text(json.dumps({"raw": [{"name": "r", "prompt": "<bos>x"}]}))
    assert load_prompts(path) == [AskedPrompt("r", "<bos>x", raw=True)]
    path.write_text(json.dumps({"workloads": [{"name": "w", "prompt": "x"}], "raw": [{"name": "r", "prompt": "y"}]}))
    assert [prompt.name for prompt in load_prompts(path)] == ["w", "r"]
    path.write_text(json.dumps({"workloads": [{"name": "r", "prompt": "x"}], "raw": [{"name": "r", "prompt": "y"}]}))
    with pytest.raises(UsageError, match="two prompts have one name"):
        load_prompts(path)
    path.write_text(json.dumps({"workloads": []}))
    with pytest.raises(UsageError, match="it has no prompts"):
        load_prompts(path)
    path.write_text("[]")
    with pytest.raises(UsageError, match="not a file of prompts"):
        load_prompts(path)
