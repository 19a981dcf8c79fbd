"""Environment variables as they come out of env files and unit files."""

from __future__ import annotations

import pytest

from pilotfish.hooks.environment import OFF, switched_off, variable


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


@pytest.mark.parametrize("value", [*OFF, "OFF", "False", '"off"', " 'No' "])
def test_each_word_for_off_is_off_in_any_case_and_in_quotes(value):
    assert switched_off("NAME", {"NAME": value})


@pytest.mark.parametrize("value", ["", "on", "1", "yes", "true", "offside", "00"])
def test_any_other_value_is_not(value):
    assert not switched_off("NAME", {"NAME": value})
    assert not switched_off("NAME", {})
