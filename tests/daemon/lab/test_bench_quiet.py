"""Whether others used the machine: their time is what is busy and not ours."""

from __future__ import annotations

import subprocess
import sys

from pilotfish.daemon.lab.bench_quiet import QuietWatch, Snapshot, snapshot


def watch(*snapshots: Snapshot) -> tuple[QuietWatch, list[str]]:
    said: list[str] = []
    return QuietWatch(said.append, iter(snapshots).__next__), said


def test_our_own_work_is_not_held_against_the_machine():
    seen, said = watch(Snapshot(0, 100, 10), Snapshot(10, 120, 29.5))
    with seen.stretch():
        pass
    assert seen.others == [0.05]
    assert seen.quiet
    assert said == []


def test_others_that_use_more_than_a_fifth_of_a_core_are_reported_once():
    seen, said = watch(Snapshot(0, 0, 0), Snapshot(10, 15, 10), Snapshot(10, 15, 10), Snapshot(20, 30, 20))
    for _ in range(2):
        with seen.stretch():
            pass
    assert seen.others == [0.5, 0.5]
    assert not seen.quiet
    assert len(said) == 1
    assert "50% of a core" in said[0]
    assert seen.to_json()["quiet"] is False
    assert seen.to_json()["others"] == [0.5, 0.5]


def test_a_child_that_ended_gives_no_negative_figure():
    seen, _ = watch(Snapshot(0, 0, 50), Snapshot(10, 5, 60))
    with seen.stretch():
        pass
    assert seen.others == [0.0]


def test_a_real_snapshot_counts_this_process():
    before = after = snapshot()
    while after.own < before.own + 0.03:  # seconds of this process, however busy the machine is
        sum(range(10_000))
        after = snapshot()
    assert after.wall > before.wall
    assert after.busy > before.busy


def test_so_does_what_a_child_of_ours_started_and_ended():
    """As Ollama does with the process of a model that it unloads."""
    busy = "import time\nwhile time.process_time() < 0.1: pass"
    script = f"'{sys.executable}' -c '{busy}'; echo ended; read wait"
    before = snapshot()
    with subprocess.Popen(["sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ended\n"
        after = snapshot()
        child.communicate(b"\n")
    assert after.own - before.own > 0.05  # the system counts in ticks of 10 ms
