"""GBNF for the regular expressions that a schema's `pattern` may hold, read as llama-server reads them.

Only patterns from `^` to `$` are followed. Characters in a row are one item until one comes before a quantifier; but
an escaped character never begins an item, so that in `^ab\\.*$` the star repeats `ab.` as a whole. That is stock's
reading, and has to be ours: the same request has to give the same text.
"""

from __future__ import annotations

import re

MAX_DEPTH = 100  # nested groups
MAX_LENGTH = 10_000  # characters: a quantifier after a quantifier copies all that is before it
_META = frozenset("|.()[]{}*+?^$")
_PLAIN_ESCAPES = frozenset("^$.[]()|{}*+?")
_GBNF_ESCAPE = re.compile(r'\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[trn\\"\[\]-])')
_NUMBER = re.compile(r"\s*[+-]?\d+")
_DOT = r"[^\x0A\x0D]"


class Unsupported(Exception):
    """A valid pattern that has no grammar; the text says why."""


def pattern_rule(pattern: str) -> str:
    """The body between the quotes of a JSON string. Raises Unsupported, and ValueError when it is no pattern."""
    if len(pattern) > MAX_LENGTH:
        raise ValueError(f"it has {len(pattern)} characters; at most {MAX_LENGTH} are read")
    if len(pattern) < 2 or pattern[0] != "^" or pattern[-1] != "$":
        raise Unsupported("it is not anchored with ^ and $")
    reader = _Reader(pattern[1:-1])
    body = reader.sequence(0)
    if not reader.done:
        raise ValueError("unbalanced parentheses")
    return body


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    @property
    def done(self) -> bool:
        return self._at >= len(self._text)

    def sequence(self, depth: int) -> str:
        """Everything up to the end of the group that begins here, or of the pattern."""
        items: list[str] = []
        while not self.done and self._text[self._at] != ")":
            character = self._text[self._at]
            if character in "*+?{":
                self._quantify(items)
            else:
                items.append(self._item(character, depth))
        return " ".join(items)

    def _item(self, character: str, depth: int) -> str:
        if character == "(":
            return self._group(depth + 1)
        if character == "[":
            return self._class()
        if character in ".|":
            self._at += 1
            return _DOT if character == "." else "|"
        if character in "^$":
            raise Unsupported("an anchor inside of it")
        return self._literal()

    def _group(self, depth: int) -> str:
        self._at += 1
        if self._text.startswith("?", self._at):
            if not self._text.startswith("?:", self._at):
                raise Unsupported("a group that is more than a group")
            self._at += 2
        if depth > MAX_DEPTH:
            raise Unsupported("groups are nested too deeply")
        body = self.sequence(depth)
        if self.done:
            raise ValueError("unbalanced parentheses")
        self._at += 1
        return f"({body})"

    def _class(self) -> str:
        start = self._at
        self._at += 1
        while not self.done and self._text[self._at] != "]":
            self._at += len(self._escape()) if self._text[self._at] == "\\" else 1
        if self.done:
            raise ValueError("unterminated character class")
        self._at += 1
        return self._text[start : self._at]

    def _quantify(self, items: list[str]) -> None:
        if self._text[self._at] == "{":
            low, high = self._counts()
            repeated = "({})" + f"{{{{{low},{high}}}}}" if high != "0" else ""
        else:
            repeated = "{}" + self._text[self._at]
            self._at += 1
        if not items:
            raise ValueError("nothing to repeat")
        items[-1] = repeated.format(items[-1])

    def _counts(self) -> tuple[str, str]:
        """The numbers in braces; the second is empty without a limit."""
        end = self._text.find("}", self._at)
        if end < 0:
            raise Unsupported("unterminated braces")
        parts = self._text[self._at + 1 : end].split(",")
        self._at = end + 1
        if len(parts) > 2 or (len(parts) == 1 and not parts[0]):
            raise Unsupported("braces that hold no count")
        numbers = [_NUMBER.match(part) for part in parts]
        if any(part and number is None for part, number in zip(parts, numbers, strict=True)):
            raise Unsupported("braces that hold no count")
        counts = [str(int(number[0])) if number else "" for number in numbers]
        low, high = counts[0] or "0", counts[-1]
        if high and int(high) < int(low):
            raise ValueError(f"at least {low} and at most {high} times")
        return low, high

    def _literal(self) -> str:
        found = ""
        while not self.done:
            character = self._text[self._at]
            if character == "\\":
                found += self._escaped()
            elif character == '"' or self._continues(found):
                found += '\\"' if character == '"' else character
                self._at += 1
            else:
                break
        if not found:
            raise Unsupported(f"the character {self._text[self._at]!r}")
        return f'"{found}"'

    def _continues(self, found: str) -> bool:
        """Whether the character at hand belongs to the item: not if only it is meant by what follows."""
        following = self._text[self._at + 1 : self._at + 2]
        return self._text[self._at] not in _META and (not found or following == "." or following not in _META)

    def _escaped(self) -> str:
        following = self._text[self._at + 1 : self._at + 2]
        if not following:
            raise ValueError("a backslash at the end")
        if following in _PLAIN_ESCAPES:
            self._at += 2
            return following
        escape = self._escape()
        self._at += len(escape)
        return escape

    def _escape(self) -> str:
        """The escape that begins here, which must be one that GBNF has."""
        found = _GBNF_ESCAPE.match(self._text, self._at)
        if found is None:
            raise Unsupported(f"the escape {self._text[self._at : self._at + 2]}")
        return found[0]
