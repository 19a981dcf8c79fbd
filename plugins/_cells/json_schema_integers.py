"""GBNF for the decimal numbers between two bounds.

Between two bounds it is exact. With one bound, numbers of up to 16 digits are meant, and stock misses that for some
with a one or a zero in the wrong place: `minimum` 105 lets 15 through, and `minimum` 110 does not let 1000. Since the
same request has to give the same text, this is kept.
"""

from __future__ import annotations

DIGITS = 16  # of a number without an upper bound


def integer_range(low: int | None, high: int | None) -> str:
    """Integers from `low` to `high`; None is no bound, and at least one is needed."""
    if low is not None and high is not None:
        return _between(low, high)
    if low is not None:
        return _from(low, DIGITS, leading=True)
    assert high is not None  # the caller's part
    if high >= 0:
        return f'"-" [1-9] {_digits(0, DIGITS - 1)} | {_between(0, high)}'
    return f'"-" ({_from(-high, DIGITS, leading=False)})'


def _between(low: int, high: int) -> str:
    if high < 0:
        return f'"-" ({_between(-high, -low)})'
    if low < 0:
        return f'"-" ({_between(0, -low)}) | {_between(0, high)}'
    parts = []
    for length in range(len(str(low)), len(str(high))):
        parts.append(_same_length(str(low), "9" * length))
        low = 10**length
    return " | ".join([*parts, _same_length(str(low), str(high))])


def _same_length(low: str, high: str) -> str:
    """From `low` to `high`, which have equally many digits."""
    common = next((i for i, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), len(low))
    start, low, high = low[:common], low[common:], high[common:]
    head = [f'"{start}"'] if start else []
    if not low:
        return " ".join(head)
    if len(low) == 1:
        return " ".join([*head, _digit(low, high)])
    rest = len(low) - 1
    first, last, choices = int(low[0]), int(high[0]), []
    if low[1:] != "0" * rest:  # not all numbers that begin as the lowest one
        choices.append(f"[{first}] ({_same_length(low[1:], '9' * rest)})")
        first += 1
    cut = high[1:] != "9" * rest  # nor all that begin as the highest one
    if first <= last - cut:
        choices.append(f"{_digit(first, last - cut)} {_digits(rest, rest)}")
    if cut:
        choices.append(f"[{last}] {_same_length('0' * rest, high[1:])}")
    return " ".join([*head, f"({' | '.join(choices)})"])


def _from(low: int, left: int, *, leading: bool) -> str:
    """From `low` up, with `left` digits to spend; `leading` where a first zero would be one too many."""
    more = max(left - 1, 1)
    if low < 0:
        return f'"-" ({_between(0, -low)}) | [0] | [1-9] {_digits(0, left - 1)}'
    if low == 0:
        return f"[0] | [1-9] {_digits(0, more)}" if leading else _digits(1, left)
    text = str(low)
    first, lowest = int(text[0]), 1 if leading else 0
    choices = []
    if first > (1 if len(text) > 1 else lowest):
        choices.append(f"{_digit(lowest, first - 1)} {_digits(len(text), more)}")
    if len(text) == 1:
        return " | ".join([*choices, f"{_digit(first, 9)} {_digits(0, more)}"])
    choices.append(f"[{first}] ({_from(int(text[1:]), more, leading=False)})")
    if first < 9:
        choices.append(f"{_digit(first + 1, 9)} {_digits(len(text) - 1, more)}")
    return " | ".join(choices)


def _digit(low: int | str, high: int | str) -> str:
    return f"[{low}-{high}]"


def _digits(low: int, high: int) -> str:
    return f"[0-9]{{{low},{high}}}"
