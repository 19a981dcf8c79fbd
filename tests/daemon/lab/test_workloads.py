"""Workload files."""

from __future__ import annotations

import pytest

from pilotfish.daemon.lab.workloads import KINDS, load_workloads
from pilotfish.hooks.errors import UsageError


def test_the_packaged_workloads_have_names_kinds_and_a_system_message():
    workloads = load_workloads()
    assert len({w.name for w in workloads}) == len(workloads) == 8
    assert {w.kind for w in workloads} == set(KINDS)
    assert all(w.prompt and w.system for w in workloads)


@pytest.mark.parametrize(
    "text", ["", "[]", '{"workloads": [{"name": "x"}]}', '{"workloads": [{"name": "x", "kind": "z"}]}']
)
def test_a_file_that_is_no_workload_file_is_refused_by_name(tmp_path, text):
    path = tmp_path / "mine.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"mine\.json"):
        load_workloads(path)


def test_a_missing_file_is_refused_by_name(tmp_path):
    with pytest.raises(UsageError, match=r"none\.json"):
        load_workloads(tmp_path / "none.json")
