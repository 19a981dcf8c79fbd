"""A completion body becomes a request, with llama-server's types, limits and words."""

from __future__ import annotations

import json
import math

import pytest

from pilotfish.daemon.core.context_window import ContextShift
from pilotfish.daemon.core.generation import GenerationRequest
from pilotfish.daemon.lab.fakes.fake_engine import FakeTokenizer
from pilotfish.daemon.runner.wire.completion_request import read_completion
from pilotfish.daemon.runner.wire.openai_answers import checked_text_body
from pilotfish.daemon.runner.wire.request_defaults import RequestDefaults
from pilotfish.daemon.runner.wire.request_fields import COMPLETION, TEXT, FieldHandling
from pilotfish.daemon.runner.wire.sampling_options import SAMPLERS
from pilotfish.hooks.errors import RequestError, UnsupportedRequest
from pilotfish.hooks.types import SamplingParams

N_VOCAB = 100
TOKENIZER = FakeTokenizer({}, frozenset({1}))
SLOTS = RequestDefaults(parallel=4)


def read(**body):
    return read_completion({"prompt": "2 3", **body}, TOKENIZER, N_VOCAB)


def generation(**body):
    (only,) = read(**body).generations
    return only


def test_a_bare_prompt_gets_llama_servers_defaults():
    found = generation(seed=5)
    assert found == GenerationRequest((2, 3), SamplingParams(seed=5))
    assert (found.sampling.temperature, found.sampling.top_k, found.sampling.top_p, found.sampling.min_p) == (
        0.8,
        40,
        0.95,
        0.05,
    )


def test_everything_ollama_sends():
    found = read(
        stream=True, cache_prompt=True, n_predict=20, n_keep=4, temperature=0.7, top_k=20, top_p=0.9, min_p=0.1,
        stop=["a", "b"], repeat_penalty=1.1, repeat_last_n=32, frequency_penalty=0.2, presence_penalty=0.3,
        typical_p=0.9, seed=42, grammar="root ::= [0-9]", n_probs=3, preserved_tokens=["7", "8 9"],
    )  # fmt: skip
    assert found.stream
    assert found.generations == (
        GenerationRequest(
            (2, 3),
            SamplingParams(
                temperature=0.7, top_k=20, top_p=0.9, min_p=0.1, typical_p=0.9, repeat_last_n=32, repeat_penalty=1.1,
                frequency_penalty=0.2, presence_penalty=0.3, seed=42, grammar="root ::= [0-9]", n_probs=3,
            ),
            n_predict=20,
            stop=("a", "b"),
            preserved=frozenset({7}),  # only a text that is one token can be kept whole
        ),
    )  # fmt: skip


def test_the_plain_path_can_be_asked_for():
    assert generation().speculate
    assert not generation(speculate=False).speculate


@pytest.mark.parametrize(
    ("body", "ids"),
    [
        ("4 5", [(4, 5)]),
        ([4, 5], [(4, 5)]),
        ([4, "5 6", 7], [(4, 5, 6, 7)]),
        ({"prompt_string": "4"}, [(4,)]),
        ({"prompt_string": "4", "multimodal_data": []}, [(4,)]),
        (["4", "5"], [(4,), (5,)]),
        ([[4, 5], "6"], [(4, 5), (6,)]),
        ("", [()]),
    ],
)
def test_a_prompt_may_have_many_shapes(body, ids):
    assert [g.prompt for g in read(prompt=body).generations] == ids


@pytest.mark.parametrize("prompt", [5, True, {}, {"a": 1}, [], [None], [[1.5]], [1, 2.5], [1, True], [100], [-1]])
def test_other_shapes_are_refused(prompt):
    with pytest.raises(RequestError, match=r"(?i)prompt|token"):
        read(prompt=prompt)


@pytest.mark.parametrize("alias", ["n_predict", "max_tokens", "max_completion_tokens"])
def test_the_budget_has_three_names(alias):
    assert generation(**{alias: 9}).n_predict == 9


def test_the_first_name_that_is_not_null_counts():
    assert generation(n_predict=None, max_completion_tokens=5, max_tokens=7).n_predict == 5
    assert generation(temperature=None, stop=None, stream=None, seed=None, logit_bias=None).sampling.temperature == 0.8


@pytest.mark.parametrize(
    ("field", "sent", "used"),
    [
        ("temperature", -4, 0.0),
        ("top_p", 7, 1.0),
        ("min_p", -1, 0.0),
        ("top_k", -3, 0),
        ("top_k", 2**40, 2**31 - 1),
        ("top_k", 2.9, 2),
        ("top_k", True, 1),
        ("n_probs", -1, 0),
        ("n_probs", 10**6, N_VOCAB),
        ("seed", -5, 2**32 - 5),
        ("seed", 2**32 + 7, 7),
    ],
)
def test_soft_limits_move_the_value(field, sent, used):
    assert getattr(generation(**{field: sent}).sampling, field) == used


@pytest.mark.parametrize("seed", [-1, 2**32 - 1, None])
def test_a_random_seed_is_drawn_once_and_known(seed):
    drawn = {generation(seed=seed).sampling.seed for _ in range(4)}
    assert len(drawn) == 4
    assert all(0 <= value < 2**32 - 1 for value in drawn)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("n_predict", -2),
        ("n_predict", 99_999_999_999),
        ("n_predict", "many"),
        ("repeat_last_n", -1),
        ("min_keep", -1),
        ("n_cmpl", 2),
        ("n", 0),
        ("temperature", "hot"),
        ("temperature", []),
        ("repeat_penalty", 1e39),
        ("stream", 1),
        ("stream", "yes"),
        ("cache_prompt", "yes"),
        ("speculate", 1),
        ("ignore_eos", 0),
        ("stop", [5]),
        ("grammar", 5),
        ("json_schema", "x"),
        ("json_schema", []),
        ("logit_bias", "x"),
        ("logit_bias", [5]),
        ("logit_bias", [[5]]),
        ("logit_bias", [[5, True]]),
        ("logit_bias", [[5, 1e39]]),
        ("logit_bias", [[None, 1]]),
        ("samplers", 5),
        ("lora", {}),
        ("response_fields", [5]),
        ("stream_options", []),
        ("preserved_tokens", "x"),
    ],
)
def test_wrong_types_and_hard_limits_are_refused_by_name(field, value):
    with pytest.raises(RequestError, match=f"Field '{field}'") as caught:
        read(**{field: value})
    assert not isinstance(caught.value, UnsupportedRequest)


@pytest.mark.parametrize(
    "body",
    [
        {"top_n_sigma": -1, "xtc_probability": 0, "xtc_threshold": 0.2, "dry_multiplier": 0, "dry_base": 2},
        {"mirostat": 0, "mirostat_tau": 3, "dynatemp_range": 0, "adaptive_target": -1, "lora": []},
        {"samplers": list(SAMPLERS), "n_indent": 0, "t_max_predict_ms": 0, "post_sampling_probs": False},
        {"samplers": ["penalties", "dry", "top_n_sigma", "top_k", "typical_p", "top_p", "min_p", "xtc", "temperature"]},
        {"samplers": "edskypmxt", "xtc_probability": 0.5, "xtc_threshold": 0.9, "lora": [{"id": 0, "scale": 0}]},
        {"n_cache_reuse": 0, "id_slot": -1, "verbose": False, "return_progress": True, "unheard_of": {"a": 1}},
    ],
)
def test_what_is_switched_off_or_unknown_does_not_matter(body):
    assert read(**body, seed=1) == read(seed=1)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("top_n_sigma", 1.0),
        ("xtc_probability", 0.5),
        ("dynatemp_range", 0.5),
        ("dry_multiplier", 0.8),
        ("mirostat", 2),
        ("adaptive_target", 0.5),
        ("post_sampling_probs", True),
        ("grammar_lazy", True),
        ("samplers", ["top_k"]),
        ("samplers", "kt"),
        ("n_indent", 2),
        ("lora", [{"id": 0, "scale": 1.0}]),
    ],
)
def test_samplers_that_are_not_there_are_refused_with_a_remedy(field, value):
    with pytest.raises(UnsupportedRequest, match=f"Field '{field}': .*; "):
        read(**{field: value})


def test_stop_strings():
    assert generation(stop="x").stop == ("x",)
    assert generation(stop=["x", "", "y"]).stop == ("x", "y")
    assert generation(stop=5).stop == ()
    assert len(generation(stop=[str(i) for i in range(10_000)]).stop) == 10_000
    for too_much in ([str(i) for i in range(100_000)], "é" * 40_000):
        with pytest.raises(RequestError, match=r"Field 'stop': .* more than 65536 bytes"):
            generation(stop=too_much)


def test_logit_bias_by_id_and_by_text_as_pairs_and_as_an_object():
    pairs = generation(logit_bias=[[5, 1.5], ["7 8", -2], [9, False], [1000, 1]]).sampling.logit_bias
    assert pairs == ((5, 1.5), (7, -2.0), (8, -2.0), (9, -math.inf))
    assert generation(logit_bias={"5": 1.5, "7 8": False}).sampling.logit_bias == (
        (5, 1.5),
        (7, -math.inf),
        (8, -math.inf),
    )


def test_a_schema_is_passed_on_and_a_grammar_wins_over_it():
    schema = {"type": "string"}
    assert json.loads(generation(json_schema=schema).sampling.json_schema) == schema
    assert json.loads(generation(json_schema={}).sampling.json_schema) == {"type": "object"}
    both = generation(json_schema=schema, grammar="root ::= [0-9]").sampling
    assert (both.grammar, both.json_schema) == ("root ::= [0-9]", "")
    assert generation(json_schema=schema, grammar=None).sampling.json_schema


def test_a_grammar_may_refer_to_schemas_by_name():
    schemas = {"a": {"type": "string"}, "b": {}}
    sampling = generation(grammar="root ::= a b", grammar_schemas=schemas).sampling
    assert [(name, json.loads(schema)) for name, schema in sampling.schemas] == list(schemas.items())
    assert generation(grammar_schemas=schemas).sampling.schemas == (), "without a grammar nothing refers to them"
    for wrong in ([], {"a": 5}):
        with pytest.raises(RequestError, match="grammar_schemas"):
            generation(grammar="root ::= a", grammar_schemas=wrong)


INTEGERS = ("n_predict", "seed", "top_k", "repeat_last_n", "min_keep", "n_probs", "n_keep", "mirostat")
REALS = ("temperature", "top_p", "min_p", "typical_p", "repeat_penalty", "presence_penalty", "dynatemp_range")


@pytest.mark.parametrize("name", [*INTEGERS, *REALS])
@pytest.mark.parametrize("value", [10**400, -(10**400), 1e999])
def test_a_number_that_no_float_holds_is_refused_by_name(name, value):
    with pytest.raises(RequestError, match=f"Field '{name}': must be a finite number") as caught:
        read(**{name: value})
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    "bias",
    [{"--5": 1}, {"+-5": 1}, {"9" * 300: 1}, {"9" * 5000: 1}, [[10**400, 1]], {"5": 10**400}, {"5": "x" * 10**6}],
)
def test_a_bias_without_a_proper_id_or_number_is_refused(bias):
    with pytest.raises(RequestError, match="Field 'logit_bias': ") as caught:
        read(logit_bias=bias)
    assert len(str(caught.value)) < 200


def test_ids_may_have_a_sign_and_those_outside_of_the_vocabulary_are_ignored():
    assert generation(logit_bias={"+5": 1, "-5": 1, "9" * 18: 1}).sampling.logit_bias == ((5, 1.0),)


@pytest.mark.parametrize("field", [field for field in COMPLETION if field.handling is FieldHandling.RELAYED])
def test_every_field_that_is_relayed_is_not_taken(field):
    for name in field.names:
        with pytest.raises(UnsupportedRequest):
            read_completion({"prompt": "2 3", "stream": True, name: field.asks}, TOKENIZER, N_VOCAB, SLOTS)


@pytest.mark.parametrize("field", [field for field in TEXT if field.handling is FieldHandling.RELAYED])
def test_what_only_texts_may_ask_for_is_not_taken_either(field):
    for name in field.names:
        with pytest.raises(UnsupportedRequest, match=name):
            checked_text_body({"prompt": "2 3", name: field.asks})


def test_as_many_answers_as_stock_has_slots_for():
    with pytest.raises(UnsupportedRequest, match="n_cmpl"):  # stock would give them
        read_completion({"prompt": "2 3", "n": 4}, TOKENIZER, N_VOCAB, SLOTS)
    with pytest.raises(RequestError, match="between 1 <= value <= 4") as caught:
        read_completion({"prompt": "2 3", "n": 5}, TOKENIZER, N_VOCAB, SLOTS)
    assert not isinstance(caught.value, UnsupportedRequest)


def shift_of(defaults, *, adds_bos=False, **body):
    (only,) = read_completion({"prompt": "2 3 4", **body}, TOKENIZER, N_VOCAB, defaults, adds_bos=adds_bos).generations
    return only.shift


def test_a_full_context_forgets_where_the_launch_or_the_request_says_so():
    shifting = RequestDefaults(context_shift=True, keep=4)
    assert shift_of(RequestDefaults(), n_keep=5) is None
    assert shift_of(RequestDefaults(keep=4), context_shift=True) == ContextShift(4)
    assert shift_of(shifting, context_shift=False) is None
    assert shift_of(shifting) == ContextShift(4)
    assert shift_of(shifting, n_keep=7, n_discard=9) == ContextShift(7, 9)
    assert shift_of(shifting, n_keep=-1) == ContextShift(3)  # the whole prompt
    assert shift_of(shifting, n_keep=7, adds_bos=True) == ContextShift(8)


def test_a_budget_that_is_open_is_the_launchs():
    defaults = RequestDefaults(n_predict=7)
    for body, expected in ({}, 7), ({"n_predict": -1}, 7), ({"n_predict": 3}, 3), ({"max_tokens": 0}, 0):
        found = read_completion({"prompt": "2", **body}, TOKENIZER, N_VOCAB, defaults)
        assert found.generations[0].n_predict == expected


def test_whether_cells_are_reused_is_the_launchs_to_say():
    defaults = RequestDefaults(cache_prompt=False)
    for body, expected in ({}, False), ({"cache_prompt": True}, True):
        found = read_completion({"prompt": "2", **body}, TOKENIZER, N_VOCAB, defaults)
        assert found.generations[0].cache_prompt is expected


def test_a_time_limit_is_the_generations():
    assert generation(t_max_predict_ms=250).line_ms == 250
    assert generation(t_max_predict_ms=-1).line_ms == 0
