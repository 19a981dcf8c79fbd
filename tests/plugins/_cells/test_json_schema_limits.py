"""Schemas that a stranger made to keep a server busy: refused with the place, or done at once."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from pilotfish.hooks.errors import RequestError
from pilotfish.hooks.types import SamplingParams
from pilotfish.plugins._cells.json_schema import grammar_of_schema
from pilotfish.plugins._cells.json_schema_place import below, largest_repetition

MANY = 10_000


@pytest.fixture(scope="module")
def bytes_vocabulary(tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    from tests.plugins._cells.grammar_walk import grammars_over_bytes

    with grammars_over_bytes(tmp_path_factory.mktemp("bytes")) as grammars:
        yield grammars.vocabulary


WIDE = {"properties": {f"p{i}": {} for i in range(MANY)}}


def chain(length: int) -> dict[str, object]:
    """Definitions that lead to one another, all of them named in one `allOf`."""
    defs: dict[str, object] = {f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(length)}
    return {"allOf": [{"$ref": f"#/$defs/d{i}"} for i in range(length)], "$defs": {**defs, f"d{length}": {}}}


@pytest.mark.parametrize(
    "schema",
    [
        {"allOf": [{"$ref": "#/$defs/wide"}] * MANY, "$defs": {"wide": WIDE}},
        {"allOf": [{"$ref": "#/$defs/long"}] * MANY, "$defs": {"long": {"enum": ["x" * 10_000]}}},
        {"type": ["null"] * 20_000, **{f"key{i}": 0 for i in range(20_000)}},
        {"allOf": [{"type": ["object"] * 20_000, **{f"key{i}": 0 for i in range(20_000)}}]},
        chain(5_000),
    ],
)
def test_what_unfolds_into_too_much_is_refused_with_the_place(schema: object) -> None:
    with pytest.raises(RequestError, match=r"json_schema: at #.*: the schema unfolds into too much"):
        grammar_of_schema(schema)


@pytest.mark.parametrize(
    "schema",
    [
        {"enum": list(range(MANY))},
        {"type": "object", **WIDE},
        {"properties": {"x" * 200_000: {"properties": {f"p{i}": {} for i in range(1_000)}}}},
        {"type": ["null", "string"] * 1_000},
        chain(100),
        {"type": "string", "pattern": "^a" + "*" * 9_000 + "$"},
    ],
)
def test_a_large_schema_is_done(schema: object) -> None:
    assert grammar_of_schema(schema).startswith("root ::= ")


@pytest.mark.parametrize("number", [10**18, 10**400, -(10**400), 1e300, float("inf"), float("-inf"), float("nan")])
@pytest.mark.parametrize("key", ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"])
def test_a_bound_of_too_many_digits_is_refused_by_name(key: str, number: float) -> None:
    with pytest.raises(RequestError, match=f"json_schema: at #/items: {key} must have at most 18 digits"):
        grammar_of_schema({"items": {"type": "integer", key: number}})


@pytest.mark.parametrize("key", ["minLength", "maxLength"])
def test_a_count_of_too_many_digits_is_refused_by_name(key: str) -> None:
    with pytest.raises(RequestError, match=f"json_schema: at #: {key} must"):
        grammar_of_schema({"type": "string", key: 10**400})


def test_a_pattern_that_is_too_long_is_refused_with_the_place() -> None:
    with pytest.raises(RequestError, match=r"json_schema: at #/properties/a: invalid pattern .* 200002 characters"):
        grammar_of_schema({"properties": {"a": {"type": "string", "pattern": "^" + "a*" * 100_000 + "$"}}})


def test_messages_do_not_repeat_what_is_long() -> None:
    long = "x" * 100_000
    for schema in ({"type": long}, {"$ref": f"#/{long}"}, {"pattern": f"^({long}$"}, {"properties": {long: 5}}):
        with pytest.raises(RequestError) as refused:
            grammar_of_schema(schema)
        assert len(str(refused.value)) < 1_000


def test_places_are_shortened_in_front() -> None:
    assert below("#", "properties", "a", 3) == "#/properties/a/3"
    place = "#"
    for i in range(1_000):
        place = below(place, "properties", f"{i}" + "x" * 1_000)
    assert len(place) < 500
    assert place.startswith("#...")
    assert "/999xxx" in place


@pytest.mark.parametrize(
    ("schema", "place"),
    [
        ({"items": {"maxLength": 2000}, "maxItems": 1999}, "at #/items: maxLength 2000"),
        (
            {"properties": {"a": {"items": {}, "maxItems": 2000}, "b": {"maxLength": 10_000}}},
            "at #/properties/a: maxItems",
        ),
        ({"anyOf": [{"minLength": 3}, {"minItems": 9_999}]}, "at #/anyOf/1: minItems 9999"),
        ({"pattern": "^(a|b){1,1999}$", "minLength": 5}, "at #: pattern ^(a|b){1,1999}$"),
        ({"maxLength": 5_000, "pattern": 7}, ""),
        ({"const": [[{}]]}, ""),
    ],
)
def test_what_repeats_most_is_named_with_its_place(schema: object, place: str) -> None:
    assert largest_repetition(schema).startswith(place)
    assert bool(largest_repetition(schema)) == bool(place)


@pytest.mark.model
@pytest.mark.parametrize("count", [1999, 2000, 2001, 10_000])
@pytest.mark.parametrize("key", ["minLength", "maxLength", "minItems", "maxItems"])
def test_a_long_repetition_is_obeyed_or_refused_with_its_place(bytes_vocabulary: object, key: str, count: int) -> None:
    from pilotfish.plugins._llama.library import lib
    from pilotfish.plugins.verifiers._llama_grammar import compile_grammar

    kind = {"type": "string"} if key.endswith("Length") else {"type": "array", "items": {"const": 1}}
    schema = {"properties": {"a": {**kind, key: count}}}
    refusal = ""
    try:
        lib.llama_sampler_free(compile_grammar(bytes_vocabulary, grammar_of_schema(schema), json.dumps(schema)))
    except RequestError as refused:
        refusal = str(refused)
    assert not refusal or f"json_schema: at #/properties/a: {key} {count} is more" in refusal
    assert not (refusal and count == 1999)


@pytest.mark.model
def test_a_schema_larger_than_any_grammar_may_be_is_not_read() -> None:
    from pilotfish.plugins._cells.grammar import grammar_of

    schema = json.dumps({"description": "x" * 600_000})
    with pytest.raises(RequestError, match=r"json_schema: 6000.. characters; at most"):
        grammar_of(SamplingParams(json_schema=schema))
