"""What is left out of the short form of a test, and where the Makefile looks for tests of a suite."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.long_forms import every_kind_once

TESTS = Path(__file__).parent


def test_in_the_short_form_every_value_of_every_axis_comes_once():
    forms = every_kind_once({"a": 1, "b": 2, "c": 3}, {"greedy": 0, "seeded": 8}, others=pytest.mark.xfail)
    assert [form.id for form in forms] == ["a-greedy", "a-seeded", "b-greedy", "b-seeded", "c-greedy", "c-seeded"]
    assert [form.values for form in forms if not form.marks] == [(1, 0), (2, 8), (3, 0)]


def test_the_marker_of_a_suite_stands_in_the_files_that_have_its_tests():
    """The Makefile collects no others."""
    suite = re.compile(r"\bmark\.(drafters|long|ollama|rpc|stock)\b(?!`)")
    named = {path.name for path in TESTS.rglob("*.py") if suite.search(path.read_text())}
    assert {"test_answers.py", "test_beside_stock.py"} <= named
    assert [name for name in named if not name.startswith("test_")] == []
