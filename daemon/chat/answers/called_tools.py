"""The tools that an answer may call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

ANY_OBJECT: Mapping[str, Any] = {"type": "object", "properties": {}}


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that the model may call. `parameters` is a JSON schema, as the request has it."""

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_json(cls, tool: Mapping[str, Any]) -> Tool:
        """What `to_json` made, or a client that says less."""
        function = tool["function"]
        return cls(function["name"], function.get("description") or "", function.get("parameters") or {})

    @property
    def schema(self) -> Mapping[str, Any]:
        """What the arguments must obey; any object where nothing is said."""
        return self.parameters or ANY_OBJECT

    def to_json(self) -> dict[str, Any]:
        """As a chat template sees it."""
        function = {"name": self.name, "description": self.description, "parameters": self.parameters}
        return {"type": "function", "function": function}

    @property
    def properties(self) -> Mapping[str, Any]:
        """The schemas of the arguments by their names; each stands alone."""
        properties = self.schema.get("properties")
        if not isinstance(properties, Mapping):
            return {}
        shared = {key: self.schema[key] for key in ("$defs", "definitions") if key in self.schema}
        return {name: {**schema, **shared} for name, schema in properties.items() if isinstance(schema, Mapping)}

    def is_text(self, argument: str) -> bool:
        """Whether an argument can be nothing but a text."""
        return _types(self.properties.get(argument, {})) == {"string"}

    def may_be_text(self, argument: str) -> bool:
        """Whether an argument can be a text."""
        return "string" in _types(self.properties.get(argument, {}))


_ALL = frozenset({"string", "number", "integer", "boolean", "null", "object", "array"})
_NAMES = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}


def _types(schema: Any) -> frozenset[str]:
    """What a value may be; all types where the schema does not say."""
    if not isinstance(schema, Mapping) or "$ref" in schema:
        return _ALL
    if any_of := schema.get("oneOf") or schema.get("anyOf"):
        return frozenset().union(*map(_types, any_of)) if isinstance(any_of, list) else _ALL
    if "const" in schema or isinstance(schema.get("enum"), list):
        values = [schema["const"]] if "const" in schema else schema["enum"]
        return frozenset(_NAMES.get(type(value), "null") for value in values)
    named = schema.get("type")
    if isinstance(named, list):
        return frozenset(name for name in named if isinstance(name, str))
    if isinstance(named, str):
        return frozenset({named})
    return frozenset({"object"}) if "properties" in schema else _ALL
