"""Environment variables as they come out of env files and unit files."""

from __future__ import annotations

import pytest

from pilotfish.hooks.environment import variable


@pytest.mark.parametrize(
    ("value", "read"),
    [("-1", "-1"), ('"-1"', "-1"), ("'1024'", "1024"), (' "*" ', "*"), ('" x "', "x"), ('""', ""), ("it's", "it's")],
)
def test_space_and_quotes_around_a_value_do_not_count(value, read, monkeypatch):
    assert variable("NAME", {"NAME": value}) == read
    monkeypatch.setenv("PILOTFISH_TEST_NAME", value)
    assert variable("PILOTFISH_TEST_NAME") == read


def test_a_variable_that_is_not_set_is_empty():
    assert variable("NAME", {}) == ""
