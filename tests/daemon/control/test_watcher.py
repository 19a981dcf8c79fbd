"""Folders that cannot be watched: looked at instead, without haste, and watched as soon as that works."""

from __future__ import annotations

import errno
import logging
from pathlib import Path

import pytest
from watchdog.observers.api import BaseObserver, ObservedWatch

from pilotfish.daemon.control import watcher as watch_module
from pilotfish.daemon.control.governing import governing
from pilotfish.daemon.control.watcher import TRY_AGAIN, Place, Watch
from pilotfish.daemon.lab.fakes.fake_clock import FakeClock
from tests.daemon.control.governed import save
from tests.waiting import until


class Exhausted:
    """A system whose inotify watches are used up, as long as `full`. `tries` counts what was asked of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.full = True
        self.tries = 0
        schedule = BaseObserver.schedule

        def limited(*arguments, **options) -> ObservedWatch:
            self.tries += 1
            if self.full:
                raise OSError(errno.ENOSPC, "inotify watch limit reached")
            return schedule(*arguments, **options)

        monkeypatch.setattr(BaseObserver, "schedule", limited)


@pytest.fixture
def exhausted(monkeypatch: pytest.MonkeyPatch) -> Exhausted:
    return Exhausted(monkeypatch)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_module, "LOOK_OFTEN", 0.02)


async def nothing() -> None:
    pass


async def test_the_config_is_reloaded_although_nothing_can_be_watched(config: Path, exhausted, caplog):
    save(config, "[speculation]\nmax_width = 2\n")
    with caplog.at_level(logging.WARNING, logger="pilotfish.watch"):
        async with governing() as found:
            save(config, "[speculation]\nmax_width = 3\n")
            await until(lambda: found.governor.config.speculation.max_width == 3)
            save(config, "[speculation]\nmax_width = 4\n")
            await until(lambda: found.governor.config.speculation.max_width == 4)
    folders = [record.getMessage().partition(":")[0] for record in caplog.records if record.name == "pilotfish.watch"]
    assert sorted(set(folders)) == sorted(folders)  # each once
    assert str(config.parent) in folders
    assert exhausted.tries == len(folders)


async def test_a_folder_that_cannot_be_watched_is_no_change(tmp_path: Path, exhausted):
    watch = Watch(nothing)
    assert not await watch.places([Place(tmp_path)])
    assert not await watch.places([Place(tmp_path)])
    await watch.close()


async def test_it_is_tried_again_now_and_then_and_watched_once_it_can_be(tmp_path: Path, exhausted, caplog):
    clock, looks = FakeClock(), []

    async def look() -> None:
        looks.append(clock.now)

    watch = Watch(look, clock)
    for _ in range(10):
        await watch.places([Place(tmp_path)])
    assert exhausted.tries == 1
    exhausted.full = False
    clock.advance(TRY_AGAIN)
    with caplog.at_level(logging.INFO, logger="pilotfish.watch"):
        assert await watch.places([Place(tmp_path)])
        assert not await watch.places([Place(tmp_path)])
    assert exhausted.tries == 2
    assert "is watched again" in caplog.text

    watch.start()
    (tmp_path / "new").touch()
    await until(lambda: looks)
    await watch.close()


async def test_others_are_watched_while_one_is_not(tmp_path: Path, exhausted):
    (tmp_path / "other").mkdir()
    watch = Watch(nothing)
    assert not await watch.places([Place(tmp_path)])
    exhausted.full = False
    assert await watch.places([Place(tmp_path), Place(tmp_path / "other")])
    assert not await watch.places([Place(tmp_path), Place(tmp_path / "other")])
    await watch.close()
