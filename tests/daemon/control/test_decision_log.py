"""What the shim decided, remembered for the status."""

from __future__ import annotations

from pilotfish.daemon.control import decision_log


def test_it_stays_small_and_keeps_the_newest(tmp_path):
    for i in range(400):
        decision_log.record(tmp_path, f"model-{i}", "stock", "x" * 400)

    entries = decision_log.read(tmp_path)
    assert entries[-1].model == "model-399"
    assert len(entries) >= decision_log.KEPT
    assert (tmp_path / decision_log.FILE_NAME).stat().st_size <= decision_log.MAX_BYTES + 1000


def test_damaged_lines_are_left_out(tmp_path):
    decision_log.record(tmp_path, "a", "stock", "b")
    with (tmp_path / decision_log.FILE_NAME).open("a") as file:
        file.write('{"time": \n[]\n{"time": "x", "model": 1}\n' + "[" * 50_000 + "\n")
    decision_log.record(tmp_path, "c", "runner", "line\nbreak")
    assert [entry.model for entry in decision_log.read(tmp_path)] == ["a", "c"]


def test_no_file_is_no_decision(tmp_path):
    assert decision_log.read(tmp_path / "nothing") == []
