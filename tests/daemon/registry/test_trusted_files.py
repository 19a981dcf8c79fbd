"""Whose files are opened, and that what was checked is what is read."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pilotfish.daemon.registry import trusted_files
from pilotfish.hooks.errors import ConfigError

STRANGER = 4321  # a user id that is neither root's nor this user's


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file three folders down."""
    path = tmp_path / "above" / "folder" / "mine.py"
    path.parent.mkdir(parents=True, mode=0o755)
    path.write_text("mine")
    path.chmod(0o644)
    return path


def give_away(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make `path` look, to the code under test, as if a stranger owned it."""
    if os.geteuid() == 0:
        os.chown(path, STRANGER, -1, follow_symlinks=False)
        return
    theirs, owned = path.lstat().st_ino, trusted_files._check_owner

    def check(status: os.stat_result, place: Path) -> None:
        fields = list(status)
        fields[4] = STRANGER if status.st_ino == theirs else status.st_uid
        owned(os.stat_result(fields), place)

    monkeypatch.setattr(trusted_files, "_check_owner", check)


def test_what_only_we_can_write_is_read(file: Path) -> None:
    assert trusted_files.read(file) == b"mine"


def test_a_relative_path_is_taken_from_the_working_folder(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(file.parent.parent)
    assert trusted_files.read(Path("folder", "..", "folder", "mine.py")) == b"mine"


@pytest.mark.skipif(not hasattr(os, "O_PATH"), reason="only Linux opens a folder that may not be listed")
def test_a_folder_that_may_be_passed_but_not_listed_is_no_hindrance(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.parents[1].chmod(0o311)
    really, asked = os.open, {}
    monkeypatch.setattr(os, "open", lambda name, flags, **at: asked.update({name: flags}) or really(name, flags, **at))
    assert trusted_files.read(file) == b"mine"
    assert asked["above"] & os.O_PATH, "root may list it whatever its mode, others may not"


class TestOthersMayWrite:
    @pytest.mark.parametrize("mode", [0o775, 0o757, 0o777])
    @pytest.mark.parametrize("level", [0, 1], ids=["the folder", "one above it"])
    def test_a_folder_on_the_way_refuses_the_file(self, file: Path, mode: int, level: int) -> None:
        place = file.parents[level]
        place.chmod(mode)
        with pytest.raises(ConfigError, match=f"{place}: others may write to it.*chmod go-w"):
            trusted_files.read(file)

    def test_a_sticky_one_above_is_passed_where_the_entry_is_ours(self, file: Path) -> None:
        file.parents[1].chmod(0o1777)
        assert trusted_files.read(file) == b"mine"

    def test_a_sticky_one_above_is_not_passed_where_the_entry_is_anothers(
        self, file: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        file.parents[1].chmod(0o1777)
        give_away(file.parent, monkeypatch)
        with pytest.raises(ConfigError, match=f"{file.parent}: belongs to another user"):
            trusted_files.read(file)

    def test_a_sticky_folder_holds_no_plugins_since_others_may_add_some(self, file: Path) -> None:
        file.parent.chmod(0o1777)
        with pytest.raises(ConfigError, match="others may write"):
            trusted_files.read(file)

    def test_a_folder_above_that_belongs_to_another_refuses_the_file(
        self, file: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        give_away(file.parents[1], monkeypatch)
        with pytest.raises(ConfigError, match=f"{file.parents[1]}: belongs to another user"):
            trusted_files.read(file)


class TestLinks:
    @pytest.mark.parametrize("relative", [True, False])
    def test_a_linked_folder_of_ours_is_followed(self, file: Path, tmp_path: Path, relative: bool) -> None:
        link = tmp_path / "link"
        link.symlink_to(Path("above", "folder") if relative else file.parent)
        assert trusted_files.read(link / "mine.py") == b"mine"

    def test_a_link_in_a_folder_that_others_may_write_is_refused(self, file: Path, tmp_path: Path) -> None:
        place = tmp_path / "place"
        place.mkdir()
        (place / "link").symlink_to(file.parent)
        place.chmod(0o777)
        with pytest.raises(ConfigError, match=f"{place}: others may write"):
            trusted_files.read(place / "link" / "mine.py")

    def test_a_link_that_another_made_in_a_sticky_folder_is_refused(
        self, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        place = tmp_path / "place"
        place.mkdir()
        place.chmod(0o1777)
        (place / "link").symlink_to(file.parent)
        give_away(place / "link", monkeypatch)
        with pytest.raises(ConfigError, match="link: belongs to another user"):
            trusted_files.read(place / "link" / "mine.py")

    def test_a_linked_file_in_a_folder_to_which_others_may_add_is_refused(self, file: Path, tmp_path: Path) -> None:
        place = tmp_path / "place"
        place.mkdir()
        place.chmod(0o1777)
        (place / "mine.py").symlink_to(file)
        with pytest.raises(ConfigError, match=f"{place}: others may write"):
            trusted_files.read(place / "mine.py")

    def test_links_in_a_circle_end(self, tmp_path: Path) -> None:
        (tmp_path / "a").symlink_to("b")
        (tmp_path / "b").symlink_to("a")
        with pytest.raises(ConfigError, match="links"):
            trusted_files.read(tmp_path / "a" / "mine.py")


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo], ids=["a folder", "a pipe"])
def test_what_is_no_file_is_refused_without_waiting_for_it(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "odd.py")
    with pytest.raises(ConfigError, match="is no file"):
        trusted_files.read(tmp_path / "odd.py")


class TestSwapped:
    """Somebody exchanges something between the check and the use."""

    def when_opening(self, name: str, act: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
        """Have `act` happen right before `name` is opened."""
        really, done = os.open, []

        def opening(path: str, flags: int, *more: int, **where: int) -> int:
            if path == name and not done:
                done.append(True)
                act()
            return really(path, flags, *more, **where)

        monkeypatch.setattr(os, "open", opening)

    @pytest.fixture
    def evil(self, file: Path) -> Path:
        folder = file.parents[1] / "evil"
        folder.mkdir()
        (folder / "mine.py").write_text("evil")
        return folder

    def test_a_folder_that_was_checked_is_the_one_that_is_read(
        self, file: Path, evil: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def swap() -> None:
            file.parent.rename(file.parents[1] / "aside")
            evil.rename(file.parent)

        self.when_opening("mine.py", swap, monkeypatch)
        assert trusted_files.read(file) == b"mine"
        assert file.read_text() == "evil", "the swap took place"

    @pytest.mark.parametrize("name", ["folder", "mine.py"])
    def test_what_became_a_link_meanwhile_is_not_followed(
        self, file: Path, evil: Path, monkeypatch: pytest.MonkeyPatch, name: str
    ) -> None:
        replaced, by = (file, evil / "mine.py") if name == "mine.py" else (file.parent, evil)

        def swap() -> None:
            replaced.rename(evil / "aside")
            replaced.symlink_to(by)

        self.when_opening(name, swap, monkeypatch)
        with pytest.raises(OSError, match=name):
            trusted_files.read(file)

    def test_a_file_that_was_exchanged_is_checked_itself(
        self, file: Path, evil: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (evil / "mine.py").chmod(0o666)
        self.when_opening("mine.py", lambda: (evil / "mine.py").replace(file) and None, monkeypatch)
        with pytest.raises(ConfigError, match="others may write"):
            trusted_files.read(file)


def test_nothing_stays_open(file: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path; from pilotfish.daemon.registry import trusted_files\n"
        "low = os.dup(0); os.close(low)\n"
        "for name in sys.argv[1:]:\n"
        "    try: trusted_files.read(Path(name))\n"
        "    except OSError: pass\n"
        "sys.exit(os.dup(0) - low)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(file), str(file.with_name("none.py"))], check=False)
    assert done.returncode == 0
