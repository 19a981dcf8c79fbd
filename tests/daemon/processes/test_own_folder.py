"""Folders of draft hosts: those of the dead are removed, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pilotfish.daemon.processes import folder_lock
from pilotfish.daemon.processes.own_folder import PREFIX, OwnFolder, remove_left


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def left(temporary: Path, name: str = "left") -> Path:
    """What a process that was killed leaves: nobody holds it."""
    folder = temporary / f"{PREFIX}{name}"
    folder.mkdir(mode=0o700)
    (folder / "s").touch()
    return folder


def test_one_is_for_its_owner_only_and_goes_with_it() -> None:
    folder = OwnFolder()
    assert folder.path.stat().st_mode & 0o777 == 0o700
    (folder.path / "s").touch()
    folder.remove()
    folder.remove()
    assert not folder.path.exists()


def test_what_nobody_holds_is_removed_and_what_somebody_does_is_not(temporary: Path) -> None:
    gone, mine = left(temporary), OwnFolder()
    assert not gone.exists()
    remove_left()
    assert mine.path.exists()
    mine.remove()


def test_a_process_that_ends_in_any_way_lets_go(temporary: Path) -> None:
    code = (
        "import os, sys, tempfile; tempfile.tempdir = sys.argv[1]\n"
        "from pilotfish.daemon.processes.own_folder import OwnFolder\n"
        "folder = OwnFolder(); (folder.path / 's').touch(); os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", code, str(temporary)], check=False)
    assert len(list(temporary.iterdir())) == 1
    remove_left()
    assert list(temporary.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_another_users_is_left_alone(temporary: Path) -> None:
    theirs = left(temporary)
    os.chown(theirs, 4321, -1)
    remove_left()
    assert theirs.exists()


def test_links_files_and_other_names_are_left_alone(temporary: Path) -> None:
    treasure = temporary / "treasure"
    treasure.mkdir()
    (treasure / "gold").touch()
    (temporary / f"{PREFIX}link").symlink_to(treasure)
    (temporary / f"{PREFIX}file").touch()
    (temporary / "pilotfish-leases").mkdir()
    before = sorted(temporary.rglob("*"))
    remove_left()
    assert sorted(temporary.rglob("*")) == before


def test_one_that_is_swept_before_it_is_held_is_made_again(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    really, swept = folder_lock.take, []

    def take(path: Path) -> int | None:
        if not swept:
            swept.append(path)
            remove_left()  # by another process, in the moment between
        return really(path)

    monkeypatch.setattr(folder_lock, "take", take)
    folder = OwnFolder()
    assert folder.path.is_dir()
    assert not swept[0].exists()
    folder.remove()


def test_many_at_once_all_get_one(temporary: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        folders = list(pool.map(lambda _: OwnFolder(), range(32)))
    assert sorted(folder.path for folder in folders) == sorted(temporary.iterdir())
    for folder in folders:
        folder.remove()
