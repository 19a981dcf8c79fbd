"""What a GBNF grammar would cost libllama or a relative of it, found out in one pass before that sees it.

libllama answers most bad grammars with "no", but it trusts the others: it recurses over nested groups and chains of
rules, unrolls repetitions in memory (0.1 MB of text became 3 GB), follows every way through rules that begin with
rules (forty lines of `a ::= b | b` never end), and goes round for ever where a rule begins with itself behind one
that may be empty. What it does not read at all is left to it to refuse.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pilotfish.hooks.errors import RequestError

MAX_DEPTH = 500  # nested groups
MAX_CHAIN = 20_000  # rules that begin with one another
MAX_WAYS = 20_000  # characters or references that may come next: libllama compares each with each
MAX_ELEMENTS = 2_000_000  # after unrolling; 16 bytes each
MAX_TIMES = 2000  # of a repetition; beyond, libllama has no limit or refuses

_RULE_ELEMENTS = 8  # what a rule costs besides its elements
_TOKEN = re.compile(
    r"""(?P<space>[\ \t\r\n]++|\#[^\r\n]*+)
    | (?P<rule>[a-zA-Z0-9-]++[\ \t]*+::=)
    | (?P<name>[a-zA-Z0-9-]++)
    | (?P<terminal>"(?:\\.|[^"\\])*+["\\]?|\[(?:\\.|[^\]\\])*+[\]\\]?|!?<[^>]*+>?|\.)
    | (?P<open>\()
    | (?P<close>\))
    | (?P<or>\|)
    | (?P<repeat>[*+?]|\{(?:\#[^\r\n]*+|[^}\#])*+\}?)
    | (?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
_TIMES = re.compile(r"\{\s*(\d+)\s*(,?)\s*(\d*)\s*\}", re.ASCII)


def check_cost(grammar: str, *, nested: bool = False) -> None:
    """Raises RequestError for a grammar that libllama should not be given, saying what to change.

    With `nested` a repeated group counts with all that is repeated in it, which libllama limits by itself.
    """
    reader = _GrammarReader(nested)
    if reader.read(grammar):
        _check_ways(reader.rules)


@dataclass(slots=True, eq=False)
class _Rule:
    """A rule, a group or a repetition: alternatives of symbols in a row, where None stands for characters."""

    alternatives: list[list[_Rule | None]]
    times: int = 1  # how often its symbols stand in a row
    may_be_empty: bool = False
    ways: int = 0  # what it may begin with, counted
    chain: int = 0  # rules in a row that begin with one another, from here
    component: int = -1

    def beginnings(self) -> Iterator[tuple[_Rule | None, bool]]:
        """What it may begin with, and whether nothing follows that in its alternative."""
        for alternative in self.alternatives:
            for at, symbol in enumerate(alternative):
                yield symbol, at + 1 == len(alternative)
                if symbol is None or not symbol.may_be_empty:
                    break


class _GrammarReader:
    """Reads rules, and counts what they become in memory."""

    def __init__(self, nested: bool) -> None:
        self._nested = nested
        self._before: list[int] = []  # elements before each open group
        self.rules: list[_Rule] = []
        self._names: dict[str, _Rule] = {}
        self._open: list[_Rule] = []  # the rule at hand, and the groups in it
        self._elements = 0
        self._last = 0  # elements of the last symbol

    def read(self, grammar: str) -> bool:
        """Whether it is read to its end. Raises RequestError when it is too deep or too large."""
        for token in _TOKEN.finditer(grammar):
            if not self._take(token.lastgroup or "", token[0]):
                return False
            if self._elements > MAX_ELEMENTS:
                raise RequestError(
                    f"grammar: unrolls to more than {MAX_ELEMENTS} elements; repeat less, or shorter things"
                )
        return len(self._open) == 1

    def _take(self, kind: str, text: str) -> bool:
        if kind == "space":
            return True
        if kind == "rule":
            self._open = [self._named(text.removesuffix("::=").rstrip())]
            self._open[0].alternatives = [[]]
            return True
        if not self._open or kind == "other":
            return False
        if kind == "repeat":
            return self._repeat(text)
        if kind == "close":
            return self._close()
        self._symbol(kind, text)
        return True

    def _symbol(self, kind: str, text: str) -> None:
        if kind == "or":
            self._open[-1].alternatives.append([])
        elif kind == "open":
            self._open_group()
        elif kind == "name":
            self._append(self._named(text), 1)
        elif text not in ('""', "[]"):
            self._append(None, len(text))

    def _append(self, symbol: _Rule | None, elements: int) -> None:
        self._open[-1].alternatives[-1].append(symbol)
        self._elements += elements
        self._last = elements

    def _open_group(self) -> None:
        group = self._new([[]])
        self._append(group, 1)
        self._open.append(group)
        self._before.append(self._elements)
        if len(self._open) - 1 > MAX_DEPTH:
            raise RequestError(
                f"grammar: groups are nested more than {MAX_DEPTH} deep; give inner groups their own rules"
            )

    def _close(self) -> bool:
        self._open.pop()
        inside = self._elements - self._before.pop() if self._before else 0
        self._last = 1 + inside if self._nested else 1
        return bool(self._open)

    def _repeat(self, text: str) -> bool:
        alternative = self._open[-1].alternatives[-1]
        if not alternative:
            return False
        low, high = _times(text)
        if high is not None and high < low:  # libllama would add rules for ever
            raise RequestError(f"grammar: {text:.100} repeats at least {low} and at most {high} times; swap the two")
        optional = 1 if high is None else high - low
        alternative.append(self._repeated(alternative.pop(), low, optional, endless=high is None))
        self._elements += low * self._last + optional * (self._last + _RULE_ELEMENTS)
        self._last = max(1, low * self._last + min(optional, 1))
        return True

    def _repeated(self, symbol: _Rule | None, low: int, optional: int, *, endless: bool) -> _Rule | None:
        """`symbol` as often as it must be, then as often as it may be."""
        certain = symbol if low == 1 else self._new([[symbol]], low)
        if low and not optional:
            return certain
        more = self._new([[symbol], []], optional)
        if endless or optional > 1:
            more.alternatives[0].append(more)
        return self._new([[certain, more]]) if low else more

    def _named(self, name: str) -> _Rule:
        if name not in self._names:
            self._names[name] = self._new([])
        return self._names[name]

    def _new(self, alternatives: list[list[_Rule | None]], times: int = 1) -> _Rule:
        self.rules.append(_Rule(alternatives, times))
        self._elements += _RULE_ELEMENTS
        return self.rules[-1]


def _times(text: str) -> tuple[int, int | None]:
    """How often, at least and at most; None is no limit. What is hard to read is taken for the worst."""
    if text in ("*", "+", "?"):
        return int(text == "+"), 1 if text == "?" else None
    found = _TIMES.fullmatch(text)
    if found is None:
        return MAX_TIMES, MAX_TIMES
    low = _limited(found[1])
    return low, _limited(found[3]) if found[3] else None if found[2] else low


def _limited(digits: str) -> int:
    return min(int(digits[:9]), MAX_TIMES)


def _check_ways(rules: list[_Rule]) -> None:
    _mark_empty(rules)
    for number, component in enumerate(_components(rules)):
        for rule in component:
            rule.component = number
        if any(_inside(symbol, number) and not last for rule in component for symbol, last in rule.beginnings()):
            raise RequestError("grammar: left recursion, a rule begins with itself; let something come before it")
        _count(component, number)
    for rule in rules:
        if max(rule.ways, *map(_widest, rule.alternatives), 0) > MAX_WAYS:
            raise RequestError(f"grammar: more than {MAX_WAYS} ways to go on in one place; give it fewer alternatives")


def _inside(symbol: _Rule | None, component: int) -> bool:
    return symbol is not None and symbol.component == component


def _count(component: list[_Rule], number: int) -> None:
    """The ways and the chain of rules that lead to one another, from those of the rules that they lead to."""
    ways, chain = 0, 0
    for rule in component:
        begins = [symbol for symbol, _ in rule.beginnings() if not _inside(symbol, number)]
        own = sum(map(_ways, begins))
        item_may_be_empty = any(symbol is not None and symbol.may_be_empty for symbol in begins)
        ways += own * (rule.times if item_may_be_empty else 1)
        chain = max([chain, *(symbol.chain for symbol in begins if symbol is not None)])
    for rule in component:
        rule.ways, rule.chain = min(ways, 2 * MAX_WAYS), chain + len(component)
        if rule.chain > MAX_CHAIN:
            raise RequestError(f"grammar: more than {MAX_CHAIN} rules begin with one another; let fewer do so")


def _ways(symbol: _Rule | None) -> int:
    return 1 if symbol is None else 1 + symbol.ways


def _widest(alternative: list[_Rule | None]) -> int:
    """The most ways to go on from a place in `alternative`: where several symbols in a row may be empty."""
    widest = run = 0
    for symbol in alternative:
        run += _ways(symbol)
        widest = max(widest, run)
        if symbol is None or not symbol.may_be_empty:
            run = 0
    return widest


def _mark_empty(rules: list[_Rule]) -> None:
    """Find the rules that may be empty: each alternative waits for all of its symbols."""
    waiting: dict[int, list[_Alternative]] = {}
    found = []
    for rule in rules:
        for symbols in rule.alternatives:
            if None in symbols:
                continue
            if not symbols:
                found.append(rule)
            alternative = _Alternative(rule, len(symbols))
            for symbol in symbols:
                waiting.setdefault(id(symbol), []).append(alternative)
    while found:
        rule = found.pop()
        rule.may_be_empty = True
        for alternative in waiting.pop(id(rule), []):
            alternative.missing -= 1
            if not alternative.missing and not alternative.rule.may_be_empty:
                found.append(alternative.rule)


@dataclass(slots=True)
class _Alternative:
    rule: _Rule
    missing: int  # symbols that are not known to be empty at times


def _components(rules: Iterable[_Rule]) -> Iterator[list[_Rule]]:
    """Rules that can begin with one another, each group after all that it leads to.

    Tarjan, "Depth-first search and linear graph algorithms", https://doi.org/10.1137/0201010, without recursion.
    """
    order: dict[int, int] = {}
    low: dict[int, int] = {}
    trail: list[_Rule] = []
    on_trail: set[int] = set()
    for start in rules:
        work = [(start, start.beginnings())] if id(start) not in order else []
        while work:
            rule, beginnings = work[-1]
            if id(rule) not in order:
                order[id(rule)] = low[id(rule)] = len(order)
                trail.append(rule)
                on_trail.add(id(rule))
            for symbol, _ in beginnings:
                if symbol is None:
                    continue
                if id(symbol) not in order:
                    work.append((symbol, symbol.beginnings()))
                    break
                if id(symbol) in on_trail:
                    low[id(rule)] = min(low[id(rule)], order[id(symbol)])
            else:
                work.pop()
                if work:
                    before = id(work[-1][0])
                    low[before] = min(low[before], low[id(rule)])
                if low[id(rule)] == order[id(rule)]:
                    yield _cut(trail, rule, on_trail)


def _cut(trail: list[_Rule], first: _Rule, on_trail: set[int]) -> list[_Rule]:
    component: list[_Rule] = []
    while not component or component[-1] is not first:
        component.append(trail.pop())
        on_trail.discard(id(component[-1]))
    return component
