"""The chart, and what is said where none can be drawn."""

from __future__ import annotations

import importlib.util

import pytest

from pilotfish.daemon.lab import bench_chart
from pilotfish.daemon.lab.bench_document import BenchResult
from pilotfish.hooks.errors import UsageError
from tests.daemon.lab.test_bench_report import SYSTEMS, run

RESULT = BenchResult(
    SYSTEMS,
    SYSTEMS[0].name,
    [
        run(system.name, 4.0 + i, workload=kind, kind=kind, equal=True if system.reference else None)
        for i, system in enumerate(SYSTEMS)
        for kind in ("copy", "open")
    ],
    {},
    {},
)


def test_without_matplotlib_the_error_names_the_extra(monkeypatch, tmp_path):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"pip install 'pilotfish\[bench\]'"):
        bench_chart.draw(RESULT, tmp_path / "chart.svg")
    assert not (tmp_path / "chart.svg").exists()


def test_the_chart_has_every_system_but_the_baseline_and_repeats_to_the_byte(tmp_path):
    # The library is an extra: charts are for who publishes figures.
    pytest.importorskip("matplotlib")
    first, second, png = (tmp_path / name for name in ("a.svg", "b.svg", "c.png"))
    for path in (first, second, png):
        bench_chart.draw(RESULT, path)
    assert first.read_bytes() == second.read_bytes()
    text = first.read_text()
    assert text.count("<!-- pilotfish (ik) oracle -->") == 2  # one panel a pass
    assert "<!-- 2.00x -->" not in text
    assert "ids equal 2/2" in text
    assert png.read_bytes().startswith(b"\x89PNG")
