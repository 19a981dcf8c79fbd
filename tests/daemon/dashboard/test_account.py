"""What runners report becomes hours, days, models and programs; and is still there after a restart."""

from __future__ import annotations

import contextlib
import sqlite3
import time

from pilotfish.daemon.control.happenings import Happening
from pilotfish.daemon.control.plans import Registration, Report
from pilotfish.daemon.core.totals import Totals
from pilotfish.daemon.dashboard.account import DAYS, HOUR, MOST_PROCESSES, Account, Cell
from pilotfish.daemon.dashboard.history import AccountHistory, News

NOON = time.mktime((2026, 11, 30, 12, 0, 0, 0, 0, -1))
DAY = 24 * HOUR


def runner(model: str = "a:latest", pid: int = 7) -> Registration:
    return Registration(pid, 4711, model, 1.5)


def report(**clients: Totals) -> Report:
    return Report(clients=clients)


class Clock:
    def __init__(self) -> None:
        self.at = NOON

    def __call__(self) -> float:
        return self.at


def test_a_report_counts_what_is_new_in_it():
    account = Account(Clock())
    account.reported(runner(), report(curl=Totals(1, 10, saved_seconds=2.0)))
    account.reported(runner(), report(curl=Totals(3, 30, saved_seconds=1.5), go=Totals(1, 5)))
    account.reported(runner(), report(curl=Totals(3, 30, saved_seconds=1.5), go=Totals(1, 5)))
    found = account.summary()
    assert (found["today"]["requests"], found["today"]["committed"]) == (4, 35)
    assert found["today"]["saved_seconds"] == 1.5
    assert [(row["name"], row["today"]["requests"]) for row in found["clients"]] == [("curl", 3), ("go", 1)]


def test_days_are_this_machines_days_and_old_ones_go():
    clock = Clock()
    account = Account(clock)
    account.reported(runner(), report(curl=Totals(1, 10)))
    clock.at += DAY
    account.reported(runner(), report(curl=Totals(2, 30)))
    found = account.summary()
    assert found["today"]["committed"] == 20
    assert found["week"]["committed"] == 30
    assert [row["committed"] for row in account.days()[-2:]] == [10, 20]
    assert len(account.days()) == DAYS
    assert [row["committed"] for row in account.hours(25)[::24]] == [10, 20]
    clock.at += (DAYS + 1) * DAY
    account.forget()
    assert account.cells == {}


def test_a_history_outlives_its_daemon_and_counts_nothing_twice(tmp_path):
    before, history = Account(Clock()), AccountHistory(tmp_path)
    before.reported(runner(), report(curl=Totals(2, 20, saved_seconds=1.0)))
    happened = [Happening(NOON + i, "loaded", "a:latest", f"number {i}") for i in range(1200)]
    history.save(News(before.forget(), before.cells, before.processes, happened))
    assert history.trouble == ""

    kept = AccountHistory(tmp_path).load()
    after = Account(Clock())
    after.restore(kept.cells, kept.processes)
    assert after.summary() == before.summary()
    after.reported(runner(), report(curl=Totals(3, 25, saved_seconds=1.0)))
    assert after.summary()["today"]["requests"] == 3
    assert [each.text for each in kept.happenings] == [f"number {i}" for i in range(200, 1200)]
    assert history.path.stat().st_mode & 0o077 == 0


def test_what_is_too_old_is_deleted(tmp_path):
    history = AccountHistory(tmp_path)
    old, new = Cell(100, "a", "curl"), Cell(200, "a", "curl")
    history.save(News(0, {old: Totals(1), new: Totals(2)}, {}, []))
    history.save(News(150, {}, {}, []))
    assert history.load().cells == {new: Totals(2)}


def test_two_daemons_with_one_state_folder_add_up_in_the_same_hour(tmp_path):
    cell, one, other = Cell(200, "a", "curl"), AccountHistory(tmp_path), AccountHistory(tmp_path)
    one.save(News(0, {cell: Totals(1, 10, saved_seconds=1.0)}, {}, []))
    other.save(News(0, {cell: Totals(2, 20, saved_seconds=-0.5)}, {}, []))
    one.save(News(0, {cell: Totals(1, 5)}, {}, []))
    assert one.load().cells == {cell: Totals(4, 35, saved_seconds=0.5)}


def test_what_could_not_be_saved_is_with_what_came_since():
    clock = Clock()
    account = Account(clock)
    account.reported(runner(), report(curl=Totals(1, 10)))
    added, moved, account.added, account.moved = account.added, account.moved, {}, set()
    account.reported(runner(), report(curl=Totals(3, 30)))
    account.not_saved(added, moved)
    assert list(account.added.values()) == [Totals(3, 30)]
    assert account.moved == {"7-1.500"}
    clock.at += (DAYS + 1) * DAY
    account.forget()
    assert account.added == {}


def test_a_broken_file_is_put_aside(tmp_path):
    history = AccountHistory(tmp_path)
    history.path.write_bytes(b"no database at all" * 100)
    assert history.load().cells == {}
    assert history.path.with_suffix(".broken").exists()
    history.save(News(0, {Cell(1, "a", "b"): Totals(1)}, {}, []))
    assert history.trouble == ""
    assert len(history.load().cells) == 1


def test_a_file_with_something_else_in_it_is_put_aside(tmp_path):
    history = AccountHistory(tmp_path)
    history.save(News(0, {}, {"7-1.500": {"curl": Totals(1)}}, []))
    with contextlib.closing(sqlite3.connect(history.path)) as database, database:
        database.execute("UPDATE processes SET clients = 'no JSON'")
    assert history.load().processes == {}
    assert history.path.with_suffix(".broken").exists()


def test_a_file_that_somebody_else_has_locked_stays_where_it_is(tmp_path, monkeypatch):
    history = AccountHistory(tmp_path)
    history.save(News(0, {Cell(1, "a", "b"): Totals(1)}, {}, []))
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda path, timeout=0: connect(path, timeout=0))
    with contextlib.closing(connect(history.path)) as other:
        other.execute("BEGIN EXCLUSIVE")
        assert history.load().cells == {}
        assert "locked" in history.trouble
        assert not history.save(News(0, {Cell(2, "a", "b"): Totals(1)}, {}, []))
    assert not history.path.with_suffix(".broken").exists()
    assert list(history.load().cells) == [Cell(1, "a", "b")]


def test_a_folder_that_cannot_be_written_costs_the_history_alone(tmp_path):
    (tmp_path / "state").write_text("a file")
    history = AccountHistory(tmp_path / "state")
    history.save(News(0, {Cell(1, "a", "b"): Totals(1)}, {}, []))
    assert str(history.path) in history.trouble


def test_what_is_known_of_processes_has_bounds(tmp_path):
    account, history = Account(Clock()), AccountHistory(tmp_path)
    for pid in range(MOST_PROCESSES + 5):
        account.reported(runner(pid=pid), report(curl=Totals(1)))
    account.reported(runner(pid=6), report(curl=Totals(2)))
    account.reported(runner(pid=-1), report(curl=Totals(1)))
    assert len(account.processes) == MOST_PROCESSES
    assert "6-1.500" in account.processes
    history.save(News(account.forget(), {}, account.processes, []))
    assert len(history.load().processes) <= MOST_PROCESSES
