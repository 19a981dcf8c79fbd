"""Structured output is stock's: the grammar for a schema allows the same texts, and the model writes the same one."""

from __future__ import annotations

import random

import pytest

from pilotfish.plugins._cells.json_schema import grammar_of_schema
from tests.plugins._cells.grammar_walk import END, grammars_over_bytes

pytestmark = [pytest.mark.stock, pytest.mark.model]

NULL = {"type": "null"}
ABC = {"properties": {"a": {"type": "string"}, "b": {"type": "integer"}, "c": {"type": "boolean"}}}
DEFS = {
    "d": {"properties": {"e": {"type": "boolean"}}},
    "n": {
        "properties": {"v": {"type": "integer"}, "next": {"anyOf": [{"$ref": "#/$defs/n"}, NULL]}},
        "required": ["v"],
    },
}
PARTS = [
    {"type": "object", "properties": {"a": NULL}},
    {"anyOf": [{"properties": {"b": NULL}}, {"properties": {"c": NULL}}]},
    {"$ref": "#/$defs/d"},
]
SCHEMAS = [
    *({"type": name} for name in ("object", "string", "integer", "number", "boolean", "null", "array")),
    {"description": "anything"},
    ABC,
    {**ABC, "required": ["b"]},
    {**ABC, "required": ["a", "b", "c"], "additionalProperties": False},
    {"properties": {"a": NULL, "ab": NULL, "and": {}, "and-b": NULL, "é": NULL}, "additionalProperties": True},
    {"properties": {"x": {}}, "required": ["x"], "additionalProperties": {"type": "number"}},
    {"type": "object", "additionalProperties": {"type": "array", "items": {"type": "integer"}}},
    {"type": "object", "additionalProperties": False},
    {"type": "object", "properties": {}, "additionalProperties": True},
    {"type": "array", "items": {"type": "string"}, "minItems": 2, "maxItems": 4},
    {"type": "array", "items": NULL, "maxItems": 1},
    {"type": "array", "minItems": 3},
    {"type": "array", "maxItems": 0},
    {"prefixItems": [{"type": "string"}, {"type": "number"}]},
    {"items": []},
    {"type": "string", "minLength": 2, "maxLength": 5},
    {"type": "string", "maxLength": 0},
    *({"format": name} for name in ("date", "time", "date-time", "uuid4", "email")),
    {"const": {"a": [1, 2.5, None, True, 'x "y"\n']}},
    {"enum": ["a", 1, None, False, 1.5, -0.0, 1e30]},
    {"oneOf": [{"const": 1}, {"const": 2}], "anyOf": [{"const": 3}]},
    {"type": ["integer", "object"], "properties": {"k": NULL}, "maximum": 4},
    {"allOf": PARTS, "$defs": DEFS},
    {"allOf": [{"enum": ["a", "b", "c"]}, {"enum": ["c", "b", "d"]}]},
    {"type": "string", "allOf": [{"enum": ["a"]}]},
    {"properties": {"next": {"$ref": "#/$defs/n"}}, "required": ["next"], "$defs": DEFS},
    {"properties": {"string": {"type": "string"}, "root": {"type": "number"}, "value": {}}, "required": ["root"]},
]
BOUNDS = [
    *((low, None) for low in (0, 1, 5, 9, 10, 42, 100, 105, 110, 999, 1234, -1, -15, -100)),
    *((None, high) for high in (0, 7, 10, 12345, -1, -10, -123)),
    *((0, 9), (3, 7), (5, 15), (10, 120), (100, 305), (-5, 5), (-20, -3), (-123, 1234), (7, 10001), (190, 210)),
]
PATTERNS = [
    "^abc$", "^a|b$", "^(a|b)+c?$", "^[0-9]{3}-[a-z]{2,}$", "^a.c$", "^a\\.*$", "^ab*$", "^a\\.b+$", "^(?:ab){0,1}x$",
    "^\\d+$", "abc", "^(?=a)b$", "^a$b$", "^[\\]a\\-]+$", '^"q"$', "^x{0}y$", "^x{,2}y$", "^\\x41\\u00e9$", "^a\\/b$",
    "^$", "^a]b$", "^ab{2}c$", "^(ab|cd){2}$", "^[^a-c]$", "^a\\\\+$", "^ .+$", "^a{1,2,3}$", "^a{x}$",
]  # fmt: skip
ALL = [
    *SCHEMAS,
    *({"type": "integer", "minimum": low} for low, high in BOUNDS if high is None),
    *({"type": "integer", "maximum": high} for low, high in BOUNDS if low is None),
    *({"type": "integer", "minimum": low, "maximum": high} for low, high in BOUNDS if None not in (low, high)),
    *({"type": "string", "pattern": pattern} for pattern in PATTERNS),
]
DOG = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "legs": {"type": "integer", "minimum": 2, "maximum": 8},
        "tags": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 3},
        "owner": {"type": "object", "properties": {"city": {"type": "string"}}, "additionalProperties": True},
    },
    "required": ["name", "legs"],
}


@pytest.fixture(scope="module")
def grammars(tmp_path_factory):
    with grammars_over_bytes(tmp_path_factory.mktemp("grammars")) as made:
        yield made


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seeds", [range(3), pytest.param(range(3, 12), marks=pytest.mark.long)], ids=["few", "more"])
def test_the_same_texts_are_allowed(stock, grammars, seeds):
    for schema in ALL:
        answer = stock.post("/completion", prompt="a", n_predict=1, json_schema=schema)
        assert answer.status_code == 200, schema
        theirs, ours = answer.json()["generation_settings"]["grammar"], grammar_of_schema(schema)
        for seed in seeds:
            text = difference(grammars, ours, theirs, random.Random(seed))
            assert text is None, f"{schema} goes on differently after {text!r}:\n{ours}\n{theirs}"


def difference(grammars, ours, theirs, choice, steps=40):
    """A text after which the two allow different bytes, on one random way; None when the way ends before."""
    text = b""
    with grammars.walk(ours) as mine, grammars.walk(theirs) as stocks:
        for _ in range(steps):
            allowed = mine.allowed()
            if allowed != stocks.allowed():
                return text
            if not (going_on := sorted(allowed - {END})):
                return None
            byte = choice.choice(_likely(going_on))
            text += bytes([byte])
            mine.accept(byte)
            stocks.accept(byte)
    return None


def _likely(allowed):
    """Ends of strings and structure rather than one more of a hundred characters that mean the same."""
    telling = [byte for byte in allowed if chr(byte) in '"\\{}[],:.-0159abx \n']
    return telling or allowed


@pytest.mark.parametrize("options", [{"temperature": 0}, {"temperature": 1.0, "seed": 3}], ids=["greedy", "seeded"])
@pytest.mark.parametrize(
    "schema", [DOG, {}, {"type": "array", "items": {"type": "number"}}], ids=["dog", "any", "list"]
)
def test_the_model_writes_the_same_text(runner, stock, schema, options):
    prompt = "<|im_start|>user\nDescribe a dog as JSON.<|im_end|>\n<|im_start|>assistant\n"
    body = {"prompt": prompt, "n_predict": 64, "json_schema": schema, "return_tokens": True, **options}
    ours, theirs = (server.post("/completion", **body).json() for server in (runner, stock))

    assert ours["tokens"] == theirs["tokens"]
    assert ours["content"] == theirs["content"]
