"""From a JSON schema to GBNF that accepts what llama-server's own grammar for that schema accepts.

The same request has to give the same text here and in stock, and under a grammar the text depends on every character
that it allows. So the language is stock's (build 11434), oddities included: which keyword wins where a schema has
several, which whitespace may stand where, and what is ignored (`uniqueItems`, bounds of numbers that are not
integers, formats other than dates, times and UUIDs). Rule names are our own; they do not matter.

`tests/plugins/_cells/test_json_schema.py` states the rules, and `tests/daemon/runner/test_beside_stock.py` compares.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from pilotfish.plugins._cells.json_schema_integers import integer_range
from pilotfish.plugins._cells.json_schema_pattern import Unsupported, pattern_rule
from pilotfish.plugins._cells.json_schema_place import Work, below, fail
from pilotfish.plugins._cells.json_schema_rules import BUILT_IN, alternatives, key_other_than, literal, repeated

Schema = Mapping[str, Any]
_Property = tuple[str, Any, str]  # its name, its schema, and where that stands

_UUID = re.compile("uuid[1-5]?")
_FORMATS = {"date": "date-string", "time": "time-string", "date-time": "date-time-string"}
_SIMPLE = ("number", "boolean", "null")
_TYPES = (*_SIMPLE, "object", "array", "string", "integer")
MAX_BOUND = 10**18  # of what is counted, and of integers
_ANY_KEY = "*"  # stands for the additional properties among the names of the optional ones


def grammar_of_schema(schema: Any) -> str:
    """GBNF with a `root` rule. Raises RequestError, naming the place, and RecursionError for one nested too deeply."""
    return "".join(f"{name} ::= {body}\n" for name, body in rules_of_schema(schema, "root").items())


def rules_of_schema(schema: Any, root: str, prefix: str = "") -> dict[str, str]:
    """The bodies of the rules by their names: the one for `schema` is `root`, those of its own begin with `prefix`.

    The others are the same for all schemas. Raises as `grammar_of_schema` does.
    """
    converter = _Converter(schema, prefix)
    return converter.rules(root, converter.visit(schema, "#"))


class _Converter:
    """One conversion. Methods return an expression: the name of a rule, or GBNF that may stand in a sequence."""

    def __init__(self, document: Any, prefix: str) -> None:
        self._document, self._prefix = document, prefix
        self._work = Work()
        self._rules: dict[str, str] = {}  # body to name: equal bodies are one rule
        self._built_in: dict[str, str] = {"space": BUILT_IN["space"].body}
        self._references: dict[str, str] = {}  # `$ref` to the name of its rule
        self._targets: list[tuple[str, str]] = []  # the bodies of these
        self._visited: dict[int, tuple[Any, str]] = {}  # by identity; held, so that it stays one
        self._visitors: dict[str, Callable[[Schema, str], str]] = {
            "$ref": lambda schema, path: self._reference(schema["$ref"], path),
            "anyOf": self._any_of,
            "types": self._types,
            "allOf": self._all_of,
            "const": lambda schema, path: literal(_dump(schema["const"])),
            "enum": lambda schema, path: alternatives(self._constants(schema, path)),
            "any": lambda schema, path: self._use("value"),
            "object": self._object_schema,
            "array": self._array,
            "string": self._string,
            "integer": self._integer,
        }

    def rules(self, root: str, body: str) -> dict[str, str]:
        """Every rule."""
        own = {name: body for body, name in self._rules.items()}
        return {root: body, **self._built_in, **dict(self._targets), **own}

    def visit(self, schema: Any, path: str) -> str:
        """The rule for `schema`, which stands at `path` in the document.

        Each schema is visited once. An `allOf` can lead to one again and again, 2**30 times in a kilobyte of schema.
        """
        self._work.spend(path, 1)
        if id(schema) not in self._visited:
            kind = _kind(schema, path)
            name = self._use(kind) if kind in _SIMPLE else self._rule(self._visitors[kind](schema, path), path)
            self._visited[id(schema)] = (schema, name)
        return self._visited[id(schema)][1]

    def _rule(self, body: str, path: str) -> str:
        self._work.spend(path, 1, len(body))
        return self._rules.setdefault(body, f"{self._prefix}r{len(self._rules)}")

    def _use(self, name: str) -> str:
        if name not in self._built_in:
            rule = BUILT_IN[name]
            self._built_in[name] = rule.body
            for other in rule.needs:
                self._use(other)
        return name

    def _reference(self, reference: Any, path: str) -> str:
        target = self._resolve(reference, path)
        if reference not in self._references:
            name = f"{self._prefix}ref{len(self._references)}"
            self._references[reference] = name  # known before its target is visited, which may refer back to it
            self._targets.append((name, self.visit(target, reference)))
        return self._references[reference]

    def _resolve(self, reference: Any, path: str) -> Any:
        if not isinstance(reference, str) or not reference.startswith("#/"):
            fail(path, f"unsupported $ref {reference!s:.100}, only references into the same document are supported")
        target = self._document
        for step in reference[2:].split("/"):
            if isinstance(target, dict) and step in target:
                target = target[step]
            elif isinstance(target, list) and step.isdecimal() and int(step) < len(target):
                target = target[int(step)]
            else:
                fail(path, f"cannot resolve $ref {reference:.100}, {step:.100} not found")
        return target

    def _any_of(self, schema: Schema, path: str) -> str:
        return " | ".join(self.visit(*child) for child in _any_of(schema, path))

    def _constants(self, schema: Schema, path: str) -> list[str]:
        constants = _constants(schema, path)
        self._work.spend(path, len(constants), sum(map(len, constants)))
        return constants

    def _properties(self, schema: Schema, path: str) -> list[_Property]:
        properties = _properties(schema, path)
        self._work.spend(path, len(properties), sum(len(name) for name, *_ in properties))
        return properties

    def _each_type(self, schema: Schema, path: str) -> Iterator[tuple[Any, str]]:
        self._work.spend(path, len(schema["type"]) * len(schema))
        return _children([{**schema, "type": named} for named in schema["type"]], below(path, "type"))

    def _types(self, schema: Schema, path: str) -> str:
        return " | ".join(self.visit(*child) for child in self._each_type(schema, path))

    def _all_of(self, schema: Schema, path: str) -> str:
        """One object with the properties of all parts, or the constants that are in every part."""
        properties: list[_Property] = []
        required: set[str] = set()
        constants: Counter[str] = Counter()
        for part, place, certain in self._parts(schema, path):
            kind = _kind(part, place)
            if kind == "object":
                own = self._properties(part, place)
                properties += own
                required |= {name for name, *_ in own} if certain else set()
            elif kind == "enum":
                constants.update(self._constants(part, place))
        everywhere = [constant for constant, times in constants.items() if times == len(schema["allOf"])]
        return alternatives(everywhere) if everywhere else self._object(properties, required, None, path)

    def _parts(self, schema: Schema, path: str) -> Iterator[tuple[Any, str, bool]]:
        """The parts of an `allOf`, references followed; the last value is false for one of several alternatives."""
        for part, place in _children(schema["allOf"], below(path, "allOf")):
            kind = _kind(part, place)
            if kind in ("anyOf", "types"):
                choices = _any_of(part, place) if kind == "anyOf" else self._each_type(part, place)
                yield from ((*self._followed(*choice), False) for choice in choices)
            else:
                yield (*self._followed(part, place), True)

    def _followed(self, schema: Any, path: str) -> tuple[Any, str]:
        seen = set()
        while _kind(schema, path) == "$ref":
            self._work.spend(path, 1, len(str(schema["$ref"])))
            reference = schema["$ref"]
            schema, path = self._resolve(reference, path), str(reference)
            if path in seen:
                fail(path, "refers to itself")
            seen.add(path)
        return schema, path

    def _object_schema(self, schema: Schema, path: str) -> str:
        additional = schema.get("additionalProperties", "properties" not in schema)
        if not isinstance(additional, bool | dict):
            fail(path, "additionalProperties must be a boolean or a schema")
        properties = self._properties(schema, path)
        if not properties and additional in (True, {}):
            return self._use("object")
        named = schema.get("required")
        required = {name for name in named if isinstance(name, str)} if isinstance(named, list) else set()
        return self._object(properties, required, None if additional is False else additional, path)

    def _object(self, properties: Sequence[_Property], required: set[str], additional: Any, path: str) -> str:
        """Required properties, then any of the others, both in the order of the schema; None: no additional ones."""
        rules = {
            name: self._rule(f'{literal(_dump(name))} space ":" space {self.visit(schema, place)}', place)
            for name, schema, place in properties
        }
        names = [name for name, *_ in properties]
        optional = [name for name in names if name not in required]
        if additional is not None:
            rules[_ANY_KEY] = self._additional(additional, names, path)
            optional.append(_ANY_KEY)
        certain = ' "," space '.join(rules[name] for name in names if name in required)
        if not certain and not optional:
            return '"{" space "}"'
        if optional:
            choice = self._optional(optional, rules, path)
            certain += f' ( "," space ( {choice} ) )?' if certain else f"( {choice} )?"
        return f'"{{" space {certain} space "}}"'

    def _optional(self, names: Sequence[str], rules: Mapping[str, str], path: str) -> str:
        """Any of the properties `names`, at least one of them, in their order."""
        following = ""  # what may come after the property at hand
        choices: list[str] = []
        for name in reversed(names):
            more = f'( "," space {rules[name]} )'
            first = f"{rules[name]} {more}*" if name == _ANY_KEY else rules[name]
            choices.append(f"{first} {following}".strip())
            following = self._rule(f"{more}{'*' if name == _ANY_KEY else '?'} {following}".strip(), path)
        return " | ".join(reversed(choices))

    def _additional(self, schema: Any, names: Sequence[str], path: str) -> str:
        key = self._use("string")
        if names:
            self._use("char")
            key = self._rule(key_other_than(names), path)
        value = self._use("value") if schema is True else self.visit(schema, below(path, "additionalProperties"))
        return self._rule(f'{key} ":" space {value}', path)

    def _array(self, schema: Schema, path: str) -> str:
        key = "items" if "items" in schema else "prefixItems"
        items = schema.get(key, {})
        if isinstance(items, list):
            members = ' "," space '.join(self.visit(*child) for child in _children(items, below(path, key), empty=True))
            return f'"[" space {members} space "]"'
        low, high = _counts(schema, "minItems", "maxItems", path)
        if low == 0 and high is None and _kind(items, below(path, key)) == "any":
            return self._use("array")
        members = repeated(self.visit(items, below(path, key)), low, high, separator='"," space')
        return f'"[" space {members} space "]"'

    def _string(self, schema: Schema, path: str) -> str:
        if not isinstance(schema.get("pattern", ""), str):
            fail(path, "pattern must be a string")
        (low, high), form = _counts(schema, "minLength", "maxLength", path), _format(schema, path)
        if schema.get("pattern"):
            return self._pattern(schema["pattern"], path)
        if form:
            return self._use(form)
        if low or high is not None:
            return f'"\\"" {repeated(self._use("char"), low, high)} "\\""'
        return self._use("string")

    def _pattern(self, pattern: str, path: str) -> str:
        try:
            return f'"\\"" ({pattern_rule(pattern)}) "\\""'
        except Unsupported:  # stock says so in its log and accepts any string
            return self._use("string")
        except ValueError as error:
            fail(path, f"invalid pattern {pattern:.100}: {error}")

    def _integer(self, schema: Schema, path: str) -> str:
        low, high = (
            _bound(schema, "minimum", "exclusiveMinimum", path),
            _bound(schema, "maximum", "exclusiveMaximum", path),
        )
        if low is not None and high is not None and low > high:
            fail(path, f"no integer lies between {low} and {high}")
        return self._use("integer") if low is None and high is None else f"({integer_range(low, high)})"


def _kind(schema: Any, path: str) -> str:
    """What decides over a schema: the first of its keywords, in stock's order, that says anything."""
    if not isinstance(schema, dict):
        fail(path, "a schema must be an object")
    if "$ref" in schema:
        return "$ref"
    if "oneOf" in schema or "anyOf" in schema:
        return "anyOf"
    named = schema.get("type")
    if isinstance(named, list):
        return "types"
    if "const" in schema or "enum" in schema:
        return "const" if "const" in schema else "enum"
    if not isinstance(named, str | None):
        fail(path, "type must be a string or an array of strings")
    if named and named not in _TYPES:
        fail(path, f"unrecognized type {named:.100}")
    return _structure(schema, named or "", path)


def _structure(schema: Schema, named: str, path: str) -> str:
    """The kind of a schema of type `named`; without one, its keywords tell."""
    members = "properties" in schema or schema.get("additionalProperties", True) is not True
    if "allOf" in schema and (named == "string" or (named in ("", "object") and not members)):
        return "allOf"
    if named:
        return named
    if members:
        return "object"
    if "items" in schema or "prefixItems" in schema:
        return "array"
    if any(key in schema for key in ("pattern", "minLength", "maxLength")) or _format(schema, path):
        return "string"
    return "any"


def _any_of(schema: Schema, path: str) -> Iterator[tuple[Any, str]]:
    key = "oneOf" if "oneOf" in schema else "anyOf"
    return _children(schema[key], below(path, key))


def _children(schemas: Any, path: str, *, empty: bool = False) -> Iterator[tuple[Any, str]]:
    if not isinstance(schemas, list) or not (schemas or empty):
        fail(path, "must be an array of schemas that is not empty")
    return ((schema, below(path, index)) for index, schema in enumerate(schemas))


def _properties(schema: Schema, path: str) -> list[_Property]:
    properties = schema.get("properties", {})
    if not isinstance(properties, dict):
        fail(path, "properties must be an object")
    return [(name, value, below(path, "properties", name)) for name, value in properties.items()]


def _constants(schema: Schema, path: str) -> list[str]:
    values = schema["enum"]
    if not isinstance(values, list) or not values:
        fail(path, "enum must be a non-empty array")
    return [literal(_dump(value)) for value in values]


def _format(schema: Schema, path: str) -> str:
    """The built-in rule for a string's format; empty when there is none."""
    form = schema.get("format", "")
    if not isinstance(form, str):
        fail(path, "format must be a string")
    return "uuid" if _UUID.fullmatch(form) else _FORMATS.get(form, "")


def _counts(schema: Schema, least: str, most: str, path: str) -> tuple[int, int | None]:
    """At least and at most; None is no limit."""
    low, high = _count(schema, least, path) or 0, _count(schema, most, path)
    if high is not None and high < low:
        fail(path, f"{least} {low} is more than {most} {high}")
    return low, high


def _count(schema: Schema, key: str, path: str) -> int | None:
    if key not in schema:
        return None
    value = schema[key]
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        fail(path, f"{key} must be a non-negative integer")
    if value >= MAX_BOUND:
        fail(path, f"{key} must have at most 18 digits")
    return value


def _bound(schema: Schema, inclusive: str, exclusive: str, path: str) -> int | None:
    """The last integer that is within a bound; None without one."""
    key = inclusive if inclusive in schema else exclusive
    if key not in schema:
        return None
    value = schema[key]
    if not isinstance(value, int | float) or isinstance(value, bool):
        fail(path, f"{key} must be a number")
    if not abs(value) < MAX_BOUND:
        fail(path, f"{key} must have at most 18 digits")
    lower = inclusive == "minimum"
    inwards = lower == (key == inclusive)
    whole = math.ceil(value) if inwards else math.floor(value)
    return whole if key == inclusive else whole + (1 if lower else -1)


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
