"""Grammars that would hang, crash or fill up libllama are refused before it sees them; all others are not."""

from __future__ import annotations

import pytest

from pilotfish.hooks.errors import RequestError
from pilotfish.plugins._cells.grammar_cost import MAX_CHAIN, MAX_DEPTH, MAX_WAYS, check_cost


def rules(count: int, body: str) -> str:
    """`count` rules, each with a body made of the next one's name, and a last one."""
    lines = [f"r{i} ::= {body.format(f'r{i + 1}')}" for i in range(count)]
    return "\n".join(["root ::= r0", *lines, f'r{count} ::= "x"']) + "\n"


@pytest.mark.parametrize(
    "grammar",
    [
        "root ::= " + "[" * 20_000,
        'root ::= "' + "\\" * 20_001,
        'root ::= "a"' + "{" * 20_000,
        "root ::= " + "<" * 20_000,
        "#" * 20_000,
        "a" * 500_000,
        "root ::= )" + "(" * 20_000,
        'root ::= "(((" [(] # (((\n',
        "root ::= " + '("a" | ' * MAX_DEPTH + '"b"' + ")" * MAX_DEPTH,
        'root ::= "a"{1999} "b"{0,1999} ("c" "d"{0,9}){50}\n',
        'root ::= "a"{0,99999999999999999999}\n',
        "root ::= " + " | ".join(f'"{i}"' for i in range(10_000)) + "\n",
        "root ::= " + '"a"? ' * 10_000 + "\n",
        'root ::= ("a"?)* (("b"*)+)* "c"\n',
        "root ::= " + "(" * 40 + '"a"' + ")+" * 40 + "\n",
        "root ::= " + "(" * 40 + '"a"' + "){1}" * 40 + "\n",
        'root ::= "a" root | "b" root?\n',
        'root ::= a root | "b"\na ::= ("x" | "y")+ [0-9]*\n',
        rules(5_000, '{} "a" | "b"'),
        rules(5_000, '"a" {0} | {0}'),
    ],
)
def test_what_libllama_can_read_or_refuse_by_itself_is_left_to_it(grammar):
    check_cost(grammar)


@pytest.mark.parametrize(
    ("grammar", "says"),
    [
        ("root ::= " + "(" * 20_000, "nested more than 500 deep"),
        ('root ::= "a" # no comment any more:\r' + "(" * 20_000, "nested more than 500 deep"),
        ('root ::= <"> ' + "(" * 20_000, "nested more than 500 deep"),
        ('root ::= "' + "a" * 100_000 + '"{1999}', "unrolls to more than"),
        ("root ::= " + '"a"{0,1999} ' * 1000, "unrolls to more than"),
        ("root ::= (" + '"a"{1999 # }\n} ' * 2000 + ")", "unrolls to more than"),
        ('root ::= "a"{5,3}', "at least 5 and at most 3 times"),  # libllama would add rules for ever
        ('root ::= ("a"{1999,1} "b")*', "at least 1999 and at most 1 times"),
        (rules(40, "{0} | {0}"), f"more than {MAX_WAYS} ways"),
        (rules(40, "{0}? {0}"), f"more than {MAX_WAYS} ways"),
        ('root ::= "a" ' + '"b"? ' * (MAX_WAYS + 1), f"more than {MAX_WAYS} ways"),
        ("root ::= " + " | ".join(["[a]"] * (MAX_WAYS + 1)), f"more than {MAX_WAYS} ways"),
        (rules(MAX_CHAIN + 1, "{}"), f"more than {MAX_CHAIN} rules begin with one another"),
        ('root ::= root "a" | "b"', "left recursion"),
        ('root ::= a root "x" | "y"\na ::= b\nb ::= "z" |\n', "left recursion"),  # libllama would go round for ever
        ('root ::= (a? root "x")+ | "y"\na ::= "z"*\n', "left recursion"),
        ('root ::= a | "x"\na ::= b\nb ::= root? "y"\n', "left recursion"),
        ('root ::= a a2\na ::= root | ""\na2 ::= "x"\n', "left recursion"),
    ],
)
def test_what_would_hang_crash_or_fill_it_up_is_refused(grammar, says):
    with pytest.raises(RequestError, match=says):
        check_cost(grammar)


@pytest.mark.parametrize("grammar", ['root ::= ("a"{0,1000}){0,1000}', 'root ::= (("a"{150} "b"){150}){150}'])
def test_repetitions_of_repetitions_count_where_a_parser_does_not_limit_them(grammar):
    check_cost(grammar)
    with pytest.raises(RequestError, match="unrolls to more than"):
        check_cost(grammar, nested=True)


def test_with_them_an_ordinary_grammar_is_as_cheap_as_without():
    check_cost('root ::= ("a" [0-9]{0,99} | "b" ("c" "d"{2,5})*){0,99}', nested=True)
