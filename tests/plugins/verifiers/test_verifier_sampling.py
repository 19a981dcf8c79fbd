"""Sampling options, grammars and schemas: what they do, and what they cannot break."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pytest

from pilotfish.daemon.lab.conformance.verifier_checks import accepted, ready
from pilotfish.hooks.errors import RequestError
from pilotfish.hooks.types import SamplingParams

if TYPE_CHECKING:
    from pilotfish.plugins._cells.engine import CellEngine

pytestmark = pytest.mark.model


def text_of(
    engine: CellEngine, sampling: SamplingParams, prompt: str = "Answer:", draft: Sequence[int] = (), n: int = 24
) -> str:
    """Text until an end token or `n` tokens; the first round verifies `draft`."""
    tokens: list[int] = []
    with ready(engine, engine.tokenizer.encode(prompt), sampling) as session:
        proposals = list(draft)
        while len(tokens) < n and not engine.eog & set(tokens[-1:]):
            picks = accepted(session.verify(proposals), proposals)
            session.commit(picks)
            tokens += picks
            proposals = []
    return engine.tokenizer.decode(tokens, special=False).decode("utf-8", "replace")


def test_a_draft_cannot_break_the_grammar(engine: CellEngine) -> None:
    sampling = SamplingParams(temperature=0, grammar='root ::= "[" [0-9] "]"')
    plain = text_of(engine, sampling)
    assert len(plain) == 3
    assert (plain[0], plain[1].isdigit(), plain[2]) == ("[", True, "]")
    for draft in ("[7] x", "[x]", "]]]]", "[7]7", plain + " and more"):
        ids = engine.tokenizer.encode(draft, add_special=False)
        assert text_of(engine, sampling, draft=ids) == plain


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "maxLength": 1999},
        {"type": "string", "maxLength": 2000},
        {"type": "string", "maxLength": 2001},
        {"type": "string", "maxLength": 10_000},
        {"type": "array", "items": {"type": "integer"}, "maxItems": 1999},
        {"type": "object", "properties": {}},
    ],
)
def test_long_repetitions_give_the_same_text_with_drafts_and_without(
    engine: CellEngine, schema: dict[str, object]
) -> None:
    sampling = SamplingParams(seed=3, json_schema=json.dumps(schema))
    plain = text_of(engine, sampling, "Some JSON: ", n=12)
    assert plain[0] == {"string": '"', "array": "[", "object": "{"}[str(schema["type"])]
    for draft in (plain, plain[:3] + "x"):
        ids = engine.tokenizer.encode(draft, add_special=False)[:3]
        assert text_of(engine, sampling, "Some JSON: ", draft=ids, n=12) == plain


def test_a_json_schema_is_obeyed_seeded_and_greedy(engine: CellEngine) -> None:
    schema = {
        "type": "object",
        "properties": {"name": {"enum": ["ada", "bob"]}, "old": {"type": "boolean"}},
        "required": ["name", "old"],
    }
    for sampling in (
        SamplingParams(temperature=0, json_schema=json.dumps(schema)),
        SamplingParams(seed=5, temperature=1.5, json_schema=json.dumps(schema)),
    ):
        answer = json.loads(text_of(engine, sampling, "Describe a person as JSON: ", n=64))
        assert answer["name"] in ("ada", "bob")
        assert isinstance(answer["old"], bool)


def test_the_empty_schema_means_any_object(engine: CellEngine) -> None:
    assert text_of(engine, SamplingParams(temperature=0, json_schema="{}"), n=2).lstrip().startswith("{")


def test_a_grammar_wins_over_a_schema(engine: CellEngine) -> None:
    sampling = SamplingParams(temperature=0, grammar='root ::= "yes"', json_schema='{"type":"object"}')
    assert text_of(engine, sampling) == "yes"


@pytest.mark.parametrize(
    "grammar",
    [
        "root ::= missing",
        'start ::= "a"',
        'root ::= "a',
        'root ::= root "a" | "b"',
        "???",
        'root ::= "\0"',
        "root ::= " + "(" * 20_000 + '"a"' + ")" * 20_000,
        'root ::= "a" # ' + "x" * 600_000,
        'root ::= "\ud800"',
        'root ::= ("a"{0,1000}){0,1000}',
    ],
    ids=["undefined", "no root", "open", "left recursion", "junk", "nul", "deep", "huge", "surrogate", "repetition"],
)
def test_a_bad_grammar_is_the_requests_fault_and_the_process_lives(engine: CellEngine, grammar: str) -> None:
    with pytest.raises(RequestError, match="grammar"):
        engine.open([5, 6], SamplingParams(grammar=grammar))
    assert text_of(engine, SamplingParams(temperature=0), n=2)


@pytest.mark.parametrize(
    "schema",
    ["{", "[1, 2]", '{"type": "nonsense"}', '{"$ref": "#/nowhere"}', '{"$ref": "https://example.com/schema"}'],
)
def test_a_bad_schema_is_the_requests_fault(engine: CellEngine, schema: str) -> None:
    with pytest.raises(RequestError, match="json_schema"):
        engine.open([5, 6], SamplingParams(json_schema=schema))
    deep = '{"allOf":[' * 5_000 + "{}" + "]}" * 5_000
    with pytest.raises(RequestError, match="json_schema"):
        engine.open([5, 6], SamplingParams(json_schema=deep))


def test_groups_inside_literals_do_not_count_as_nesting(engine: CellEngine) -> None:
    assert text_of(engine, SamplingParams(temperature=0, grammar='root ::= "' + "(" * 600 + '" | [(] "x"'), n=4)


def test_a_grammar_with_nothing_left_ends_the_request_not_the_process(engine: CellEngine) -> None:
    only_a = [token for token in range(engine.n_vocab) if engine.tokenizer.piece(token).startswith(b"a")]
    sampling = SamplingParams(
        temperature=0, grammar='root ::= "a"', logit_bias=tuple((token, -math.inf) for token in only_a)
    )
    with pytest.raises(RequestError, match="no token"):
        text_of(engine, sampling)
    assert text_of(engine, SamplingParams(temperature=0), n=2)


def test_what_follows_a_finished_grammar_is_an_end_token(engine: CellEngine) -> None:
    with ready(engine, [5, 6], SamplingParams(temperature=0, grammar='root ::= "a"')) as session:
        picks = []
        for _ in range(4):
            picks.append(session.verify([]).pick(0))
            session.commit(picks[-1:])
    assert engine.tokenizer.piece(picks[0]) == b"a"
    assert set(picks[1:]) <= engine.eog


def test_a_bias_bans_and_forces(engine: CellEngine) -> None:
    plain = text_of(engine, SamplingParams(temperature=0), n=1)
    (first,) = engine.tokenizer.encode(plain, add_special=False)
    banned = SamplingParams(temperature=0, logit_bias=((first, -math.inf), (10**7, 5.0), (-3, 5.0)))
    assert text_of(engine, banned, n=1) != plain
    assert text_of(engine, SamplingParams(seed=1, logit_bias=((345, 1000.0),)), n=3) == 3 * text_of_id(engine, 345)


def text_of_id(engine: CellEngine, token: int) -> str:
    return engine.tokenizer.piece(token).decode()


def test_an_argmax_is_that_of_the_whole_chain(engine: CellEngine) -> None:
    through_the_chain = SamplingParams(temperature=0, logit_bias=((345, 0.0),))  # a bias that changes nothing
    assert text_of(engine, SamplingParams(temperature=0), n=40) == text_of(engine, through_the_chain, n=40)


def test_ignore_eos_never_ends(engine: CellEngine) -> None:
    eos = tuple((token, 100.0) for token in engine.eog)
    assert text_of(engine, SamplingParams(temperature=0, logit_bias=eos), n=5) == ""
    assert len(text_of(engine, SamplingParams(temperature=0, ignore_eos=True), n=5)) > 0


def test_the_prompt_counts_for_the_penalties(engine: CellEngine) -> None:
    prompt = "one two three one two three one two three one two"
    assert text_of(engine, SamplingParams(temperature=0), prompt, n=1) == " three"
    penalized = text_of(engine, SamplingParams(temperature=0, repeat_penalty=100.0), prompt, n=1)
    assert penalized not in (" one", " two", " three")
    near = SamplingParams(temperature=0, repeat_penalty=100.0, repeat_last_n=2)  # sees "one two" only
    assert text_of(engine, near, prompt, n=1) == " three"


def test_seeds_repeat_and_differ(engine: CellEngine) -> None:
    def seeded(seed: int) -> str:
        return text_of(engine, SamplingParams(temperature=1.2, seed=seed))

    assert seeded(42) == seeded(42)
    assert len({seeded(seed) for seed in range(5)}) > 1


@pytest.mark.parametrize(
    "sampling",
    [
        SamplingParams(repeat_penalty=0.0),
        SamplingParams(repeat_penalty=math.nan),
        SamplingParams(frequency_penalty=math.inf),
        SamplingParams(presence_penalty=math.nan),
        SamplingParams(temperature=math.nan),
        SamplingParams(top_p=math.nan),
    ],
)
def test_options_without_a_meaning_are_refused_by_name(engine: CellEngine, sampling: SamplingParams) -> None:
    with pytest.raises(RequestError, match=r"^(repeat|frequency|presence)_penalty:|^temperature:|^top_p:"):
        engine.open([5, 6], sampling)


@pytest.mark.parametrize(
    "sampling",
    [
        SamplingParams(repeat_last_n=2**31 - 1, repeat_penalty=1.1),
        SamplingParams(repeat_last_n=-5, repeat_penalty=1.1),
        SamplingParams(top_k=2**40),
        SamplingParams(top_k=-7),
        SamplingParams(top_p=-3.0, min_p=9.0),
        SamplingParams(typical_p=0.0),
        SamplingParams(temperature=0, typical_p=0.2),
        SamplingParams(temperature=1e30),
        SamplingParams(min_keep=-1),
        SamplingParams(seed=2**40 + 1),
    ],
)
def test_absurd_options_draw_some_token(engine: CellEngine, sampling: SamplingParams) -> None:
    with ready(engine, [5, 6], sampling) as session:
        assert session.verify([]).pick(0) in range(engine.n_vocab)
