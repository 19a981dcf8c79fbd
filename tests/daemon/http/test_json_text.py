"""What strangers send as JSON, and what becomes of it."""

from __future__ import annotations

import json

import pytest

from pilotfish.daemon.http.json_text import SHOWN, is_finite, kind, parse_object, shown
from pilotfish.hooks.errors import RequestError


def test_a_byte_order_mark_is_passed_over():
    assert parse_object(b'\xef\xbb\xbf{"a": "\xc3\xa9"}') == {"a": "é"}


@pytest.mark.parametrize(
    ("escaped", "read"),
    [
        (r"\ud83d", "\ufffd"),
        (r"\uDE0A\uD83D", "\ufffd\ufffd"),
        (r"a\ud83d b", "a\ufffd b"),
        (r"\ud83d\ude0a", "😊"),
        (r"\\ud83d", r"\ud83d"),  # a backslash, and letters
        (r"\u0000\ufffe", "\0\ufffe"),
    ],
)
def test_half_of_a_surrogate_pair_is_read_as_the_replacement_character(escaped, read):
    raw = f'{{"text": "{escaped}", "list": [{{"{escaped}": 1e999}}], "n": 1.5}}'.encode()
    assert parse_object(raw) == {"text": read, "list": [{read: float("inf")}], "n": 1.5}


def test_bytes_that_are_no_utf8_are_named_or_replaced():
    raw = b'{"text": "caf\xe9"}'
    with pytest.raises(RequestError, match=r"not valid UTF-8 text.*position 13"):
        parse_object(raw)
    with pytest.raises(RequestError, match="position 16"):
        parse_object(b"\xef\xbb\xbf" + raw)
    assert parse_object(raw, repair=True) == {"text": "caf\ufffd"}


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b'{"a": ' + b"9" * 5000 + b"}", "a number has more than 4300 digits"),
        (b'{"a": NaN}', "NaN is not a JSON number"),
        (b'{"a": -Infinity}', "-Infinity is not a JSON number"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a": "\\ud83d", "b": ' + b"[" * 100_000, "nested too deeply"),
        (b"\xff\xfe{\0}\0", "not valid"),  # UTF-16
        (b"[]", "must be a JSON object, got an array"),
        (b"null", "must be a JSON object, got null"),
        (b"", "not valid JSON"),
    ],
)
@pytest.mark.parametrize("repair", [False, True])
def test_what_is_no_object_is_refused_in_words(raw, says, repair):
    with pytest.raises(RequestError, match=says):
        parse_object(raw, repair=repair)


def test_what_was_read_can_be_written_again_however_deep_it_is():
    read = []
    for depth in range(100, 1_200, 10):
        try:
            read.append(parse_object(b'{"a": ' + b"[" * depth + b"]" * depth + b"}"))
        except RequestError:
            continue
    assert read
    for value in read:
        assert deeper(100, lambda value=value: json.dumps(value)).startswith('{"a": [[[')
        assert len(shown(value)) == SHOWN


def deeper(frames, work):
    return work() if frames == 0 else deeper(frames - 1, work)


def test_numbers_that_no_float_holds_are_told_from_others():
    assert [is_finite(n) for n in (0, -1.5, 10**300, 10**400, -(10**400), float("inf"), float("nan"))] == [
        True, True, True, False, False, False, False,
    ]  # fmt: skip


def test_values_are_shown_as_json_and_short():
    assert [shown(value) for value in ("é", None, True, [1, {"a": "b"}])] == ['"é"', "null", "true", '[1, {"a": "b"}]']
    for value in ("x" * 10**6, list(range(10**5)), 10**400):
        assert len(shown(value)) == SHOWN


def test_types_have_their_json_names():
    values = (True, 1, 1.5, "", [], {}, None)
    assert [kind(value) for value in values] == [
        "a boolean", "a number", "a number", "a string", "an array", "an object", "null",
    ]  # fmt: skip
