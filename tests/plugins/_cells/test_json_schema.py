"""Which texts a JSON schema's grammar lets through. What stock lets through is compared where a stock server is."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest

from pilotfish.hooks.errors import RequestError
from pilotfish.plugins._cells.json_schema import grammar_of_schema
from tests.plugins._cells.grammar_walk import Grammars, grammars_over_bytes

pytestmark = pytest.mark.model

Accepts = Callable[[object, str], bool]
AB = {"type": "object", "properties": {"a": {"type": "null"}, "b": {"type": "null"}}}
A_AND_MORE = {"properties": {"ab": {"type": "null"}}, "additionalProperties": {"type": "null"}}
LIST = {"properties": {"v": {"type": "integer"}, "next": {"$ref": "#"}}, "required": ["v"]}
NODE = {
    "$ref": "#/$defs/node",
    "$defs": {"node": {**LIST, "properties": {"v": {"const": 1}, "next": {"$ref": "#/$defs/node"}}}},
}
PARTS = {
    "allOf": [
        {"properties": {"a": {"type": "null"}}},
        {"anyOf": [{"properties": {"b": {"type": "null"}}}, {"properties": {"c": {"type": "null"}}}]},
        {"$ref": "#/$defs/d"},
    ],
    "$defs": {"d": {"properties": {"d": {"type": "null"}}}},
}


@pytest.fixture(scope="module")
def grammars(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Grammars]:
    with grammars_over_bytes(tmp_path_factory.mktemp("grammars")) as made:
        yield made


@pytest.fixture
def accepts(grammars: Grammars) -> Accepts:
    """`accepts(schema, text)`: whether the model could give exactly that answer."""

    def accepted(schema: object, text: str) -> bool:
        with grammars.walk(grammar_of_schema(schema)) as walk:
            return walk.accepts(text)

    return accepted


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"type": "null"}, ["null"], ["", "nul", "null ", " null"]),
        ({"type": "boolean"}, ["true", "false"], ["True", "1"]),
        ({"type": "integer"}, ["0", "-0", "-12", "1234567890123456"], ["01", "1.0", "+1", "12345678901234567"]),
        ({"type": "number"}, ["1", "-0.5", "1.25e-10", "0E+3"], [".5", "1.", "00.1", "1e01"]),
        ({"type": "string"}, ['""', '"é😊"', r'"\n\\\"\u00e9"'], ['"\n"', r'"\x"', r'"\/"', '"', "a", '"\x7f"']),
        ({"type": "object"}, ["{}", '{"a":[1,{"b":null}]}', '{ "a": 1 }'], ["[]", '{"a"}', '{"a":1,}', '{ "a" : 1}']),
        ({"type": "array"}, ["[]", "[1,\n\n \t[ ]]"], ["{}", "[1,]", "[1\n\n\n]", "[   ]"]),
        ({}, ["1", "{}", '"a"'], ["a"]),
    ],
)
def test_the_plain_types(accepts: Accepts, schema: object, good: list[str], bad: list[str]) -> None:
    assert [text for text in good if not accepts(schema, text)] == []
    assert [text for text in bad if accepts(schema, text)] == []


def test_whitespace_is_a_space_or_one_or_two_indented_lines(accepts: Accepts) -> None:
    for gap, fine in [("", True), (" ", True), ("\n", True), ("\n\n  ", True), ("  ", False), ("\n\n\n", False)]:
        assert accepts({"type": "array", "items": {"type": "null"}}, f"[{gap}null,{gap}null{gap}]") == fine, repr(gap)


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        (AB, ["{}", '{"a":null}', '{"b":null}', '{"a":null,"b":null}'], ['{"b":null,"a":null}', '{"c":null}']),
        ({**AB, "required": ["b"]}, ['{"b":null}', '{"b":null,"a":null}'], ["{}", '{"a":null}', '{"a":null,"b":null}']),
        ({**AB, "required": ["a", "b"]}, ['{"a":null,"b":null}'], ['{"a":null}']),
        (A_AND_MORE, ['{"ab":null,"x":null,"y":null}', '{"":null}', '{"abc":null}'], ['{"x":null,"ab":null}']),
        (A_AND_MORE, ["{}"], ['{"a":null}', '{"ab":null,"ab":null}']),
        ({"type": "object", "additionalProperties": False}, ["{}", "{ }"], ['{"a":1}']),
        ({"type": "object", "properties": {}}, ["{}"], ['{"a":1}']),
        ({**AB, "additionalProperties": True}, ['{"z":{}}'], ['{"a":1}']),
        ({"properties": {'q"\\\n': {"type": "null"}}, "required": ['q"\\\n']}, [r'{"q\"\\\n":null}'], ["{}"]),
    ],
)
def test_objects(accepts: Accepts, schema: object, good: list[str], bad: list[str]) -> None:
    assert [text for text in good if not accepts(schema, text)] == []
    assert [text for text in bad if accepts(schema, text)] == []


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"items": {"const": 1}, "minItems": 2, "maxItems": 3}, ["[1,1]", "[1,1,1]"], ["[1]", "[1,1,1,1]"]),
        ({"items": {"const": 1}, "maxItems": 1}, ["[]", "[1]"], ["[1,1]"]),
        ({"type": "array", "maxItems": 0}, ["[]"], ["[1]"]),
        ({"type": "array", "minItems": 1}, ["[1]", '["a",[]]'], ["[]"]),
        ({"prefixItems": [{"const": 1}, {"type": "string"}]}, ['[1,"a"]'], ["[1]", '[1,"a",2]']),
        ({"items": [{"const": 1}], "prefixItems": [{"const": 2}]}, ["[1]"], ["[2]"]),
    ],
)
def test_arrays(accepts: Accepts, schema: object, good: list[str], bad: list[str]) -> None:
    assert [text for text in good if not accepts(schema, text)] == []
    assert [text for text in bad if accepts(schema, text)] == []


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"const": {"a": [1, 2.5, None, "é\n"]}}, ['{"a":[1,2.5,null,"é\\n"]}'], ['{"a": [1,2.5,null,"é\\n"]}']),
        ({"enum": ["a", 1, None]}, ['"a"', "1", "null"], ["2", "a"]),
        ({"oneOf": [{"const": 1}], "anyOf": [{"const": 2}]}, ["1"], ["2"]),
        ({"type": ["null", "string"], "maxLength": 1}, ["null", '"a"'], ['"ab"']),
        ({"type": "integer", "const": "x"}, ['"x"'], ["1"]),
        ({"allOf": [{"enum": [1, 2, 3]}, {"enum": [3, 2, 4]}]}, ["2", "3"], ["1", "4"]),
        (PARTS, ['{"a":null,"d":null}', '{"a":null,"d":null,"b":null,"c":null}'], ['{"a":null}', '{"d":null}']),
        (NODE, ['{"v":1}', '{"v":1,"next":{"v":1,"next":{"v":1}}}'], ['{"v":1,"next":null}']),
    ],
)
def test_choices_and_references(accepts: Accepts, schema: object, good: list[str], bad: list[str]) -> None:
    assert [text for text in good if not accepts(schema, text)] == []
    assert [text for text in bad if accepts(schema, text)] == []


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"minLength": 2, "maxLength": 3}, ['"ab"', '"é😊\\n"'], ['"a"', '"abcd"']),
        ({"type": "string", "maxLength": 0}, ['""'], ['"a"']),
        ({"format": "date"}, ['"2024-02-30"'], ['"2024-13-01"', '"24-01-01"']),
        ({"format": "time"}, ['"23:59:00Z"', '"00:00:00.123-05:30"'], ['"24:00:00Z"', '"10:00:00"']),
        ({"type": "string", "format": "date-time"}, ['"2024-01-01T10:00:00Z"'], ['"2024-01-01 10:00:00Z"']),
        ({"format": "uuid4"}, ['"01234567-89ab-cdef-0123-456789ABCDEF"'], ['"0123"']),
        ({"type": "string", "format": "email"}, ['"no address"'], []),
        ({"pattern": "^(a|bc)+[0-9]{2}\\.?$"}, ['"a12"', '"bca34."'], ['"12"', '"a1"', '"A12"']),
        ({"pattern": "^a|b$"}, ['"a"', '"b"'], ['"ab"']),
        ({"pattern": "^x{0}y{1,}z{,2}.$"}, ['"y!"', '"yyzz?"'], ['"xy!"', '"yzzzz"']),
        ({"pattern": "^[\\]a\\-]\\\\$"}, ['"a\\"', '"]\\"'], ['"b\\"']),
        ({"pattern": '^"(?:q)"$'}, ['""q""'], ['"q"']),
        ({"pattern": "^ab\\.*$"}, ['""', '"ab.ab."'], ['"ab.."']),
        ({"pattern": ""}, ['"anything"'], []),
    ],
)
def test_strings(accepts: Accepts, schema: object, good: list[str], bad: list[str]) -> None:
    schema = {"type": "string", **schema} if isinstance(schema, dict) else schema
    assert [text for text in good if not accepts(schema, text)] == []
    assert [text for text in bad if accepts(schema, text)] == []


@pytest.mark.parametrize("pattern", ["abc", "^\\d+$", "^(?=a)b$", "^a$b$", "^a]$", "^a{x}$", "^a{1,2,3}$", "^a{$"])
def test_a_pattern_that_has_no_grammar_means_any_string(accepts: Accepts, pattern: str) -> None:
    assert accepts({"type": "string", "pattern": pattern}, '"whatever"')


RANGES = [(0, 0), (3, 7), (5, 15), (10, 99), (19, 21), (90, 110), (100, 305), (199, 201), (7, 1001), (-5, 5), (-23, -3)]


@pytest.mark.parametrize(("low", "high"), RANGES)
def test_between_two_bounds_exactly_those_integers(accepts: Accepts, low: int, high: int) -> None:
    schema = {"type": "integer", "minimum": low, "maximum": high}
    tried = {*range(-130, 130), low - 1, low, high, high + 1, 305, 306, 999, 1000, 10**6}
    assert {n for n in tried if accepts(schema, str(n))} == {n for n in tried if low <= n <= high}


@pytest.mark.parametrize("bound", [0, 1, 5, 9, 10, 42, 99, -1, -9, -15])
def test_one_bound_lets_every_integer_within_through(accepts: Accepts, bound: int) -> None:
    tried = {*range(-130, 130, 3), bound - 1, bound, bound + 1, 999, 1000, 1235, 10**9, -1000, -(10**9)}
    from_bound, to_bound = {"type": "integer", "minimum": bound}, {"type": "integer", "maximum": bound}

    assert {n for n in tried if accepts(from_bound, str(n))} == {n for n in tried if n >= bound}
    assert {n for n in tried if n <= bound and not accepts(to_bound, str(n))} == set()


def test_stocks_own_idea_of_some_lower_bounds_is_kept(accepts: Accepts) -> None:
    assert accepts({"type": "integer", "minimum": 105}, "15")
    assert not accepts({"type": "integer", "minimum": 110}, "1000")


def test_fractional_and_exclusive_bounds_are_moved_inwards(accepts: Accepts) -> None:
    for schema, wanted in [
        ({"minimum": 1.5, "exclusiveMaximum": 4.5}, {2, 3, 4}),
        ({"exclusiveMinimum": 1, "maximum": 3.9}, {2, 3}),
        ({"exclusiveMinimum": 1.5, "exclusiveMaximum": 3}, {2}),
    ]:
        assert {n for n in range(9) if accepts({"type": "integer", **schema}, str(n))} == wanted


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ([1], "#: a schema must be an object"),
        ({"type": "foo"}, "unrecognized type foo"),
        ({"type": 5}, "type must be a string"),
        ({"type": []}, "#/type"),
        ({"enum": []}, "enum"),
        ({"anyOf": []}, "#/anyOf"),
        ({"properties": {"a": {"items": 5}}}, "#/properties/a/items: a schema must be an object"),
        ({"properties": 5}, "properties must be an object"),
        ({"type": "object", "additionalProperties": 5}, "additionalProperties"),
        ({"type": "string", "minLength": -1}, "minLength must be a non-negative integer"),
        ({"type": "string", "minLength": 2, "maxLength": 1}, "#: minLength 2 is more than maxLength 1"),
        ({"properties": {"a": {"items": {}, "minItems": 9, "maxItems": 0}}}, "#/properties/a: minItems 9 is more than"),
        ({"type": "string", "pattern": "^a{3,2}$"}, "at least 3 and at most 2 times"),
        ({"type": "integer", "minimum": 5, "maximum": -4}, "no integer lies between 5 and -4"),
        ({"type": "integer", "exclusiveMinimum": 1, "exclusiveMaximum": 2}, "no integer lies between 2 and 1"),
        ({"type": "integer", "minimum": "x"}, "minimum must be a number"),
        ({"format": 5}, "format must be a string"),
        ({"type": "string", "pattern": 5}, "pattern must be a string"),
        ({"$ref": "#/nope"}, "nope not found"),
        ({"$ref": "https://example.com/s"}, "only references into the same document"),
        ({"allOf": [{"$ref": "#/allOf/0"}]}, "refers to itself"),
        *(({"type": "string", "pattern": p}, "invalid pattern") for p in ("^(a$", "^a)$", "^*a$", "^[a$", "^a\\$")),
    ],
)
def test_a_schema_that_makes_no_sense_is_refused_with_the_place(schema: object, says: str) -> None:
    with pytest.raises(RequestError, match="json_schema: at #") as refused:
        grammar_of_schema(schema)
    assert says in str(refused.value)


def test_equal_parts_are_one_rule() -> None:
    wide = {"properties": {f"p{i}": {"type": "string", "maxLength": 5} for i in range(100)}}
    assert grammar_of_schema(wide).count("char{0,5}") == 1
    assert len(grammar_of_schema(wide)) < 100 * len(json.dumps(wide))


def test_parts_of_parts_are_not_visited_again_and_again() -> None:
    levels = 60  # 2**60 ways from the first to the last
    defs: dict[str, object] = {f"d{levels}": {"properties": {"a": {"type": "null"}}}}
    for i in range(levels):
        part = {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}]}
        defs[f"d{i}"] = {"properties": {"a": part, "b": part | {}}}
    assert grammar_of_schema({"$ref": "#/$defs/d0", "$defs": defs})


def test_parts_that_lead_back_to_themselves_are_refused() -> None:
    around = {"properties": {"a": {"allOf": [{"$ref": "#/$defs/d"}]}}}
    with pytest.raises(RecursionError):  # which is the request's fault, see `grammar_of`
        grammar_of_schema({"$ref": "#/$defs/d", "$defs": {"d": around}})
