from __future__ import annotations

import errno
import os
import textwrap
import traceback
from pathlib import Path
from typing import NoReturn

import pytest

from pilotfish.daemon.config.types import Config, Plugins
from pilotfish.daemon.control.plans import plugin_fingerprint, plugin_problems
from pilotfish.daemon.registry import plugin_sources
from pilotfish.daemon.registry.registry import Registry
from pilotfish.hooks.errors import ConfigError
from tests.fakes.plugin_files import GOOD, write


def load(folder: Path) -> Registry:
    return Registry.load(Config(plugins=Plugins((folder,))))


class TestTrust:
    @pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
    def test_a_file_that_others_may_write_is_refused(self, folder: Path, mode: int) -> None:
        path = write(folder, "open.py", GOOD.format(name="open"))
        path.chmod(mode)
        registry = load(folder)
        assert "open" not in registry.drafters
        [problem] = registry.problems
        assert f"chmod go-w '{path}'" in problem.message

    def test_a_folder_that_others_may_write_is_refused(self, folder: Path) -> None:
        write(folder, "fine.py", GOOD.format(name="fine"))
        folder.chmod(0o777)
        registry = load(folder)
        assert "fine" not in registry.drafters
        assert f"chmod go-w '{folder}'" in registry.problems[0].message

    def test_a_link_into_a_folder_that_others_may_write_is_refused(self, folder: Path, tmp_path: Path) -> None:
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        elsewhere.chmod(0o777)
        target = write(elsewhere, "target.py", GOOD.format(name="linked"))
        (folder / "linked.py").symlink_to(target)
        registry = load(folder)
        assert "linked" not in registry.drafters
        assert str(elsewhere) in registry.problems[0].message

    def test_a_file_of_another_user_is_refused(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = write(folder, "theirs.py", GOOD.format(name="theirs"))
        owner = path.stat().st_uid
        if owner == 0:  # root's files are trusted, so this one must be somebody's
            os.chown(path, 4321, -1)
            os.chown(folder, 0, -1)
        else:
            monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
        registry = load(folder)
        assert "theirs" not in registry.drafters
        assert "belongs to another user" in registry.problems[0].message

    def test_a_missing_folder_is_named(self, tmp_path: Path) -> None:
        registry = load(tmp_path / "nowhere")
        assert "suffix" in registry.drafters
        assert f"{tmp_path / 'nowhere'} is not a folder that can be read" in registry.problems[0].message

    def test_a_folder_below_one_that_others_may_write_is_refused(self, folder: Path) -> None:
        below = folder / "below"
        below.mkdir(mode=0o700)
        write(below, "fine.py", GOOD.format(name="fine"))
        folder.chmod(0o777)
        registry = load(below)
        assert "fine" not in registry.drafters
        assert f"chmod go-w '{folder}'" in registry.problems[0].message

    @pytest.mark.parametrize("odd", ["no/such", "a\0b", "x" * 5000, "circle", "file"])
    def test_a_folder_that_cannot_be_listed_is_a_problem_and_nothing_else(self, folder: Path, odd: str) -> None:
        (folder / "circle").symlink_to("circle")
        (folder / "file").touch()
        registry = load(folder / odd)
        assert "suffix" in registry.drafters
        assert "is not a folder that can be read" in registry.problems[0].message
        assert [str(problem) for problem in registry.problems] == list(plugin_problems([folder / odd]))
        assert plugin_fingerprint([folder / odd]) != plugin_fingerprint([])

    def test_nor_is_one_below_a_folder_that_may_not_be_searched(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        below = folder / "below"
        below.mkdir()

        def refuse(path: object, *more: object, **where: object) -> NoReturn:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))

        with monkeypatch.context() as forbidden:  # root may search every folder
            for name in ("listdir", "stat", "lstat", "scandir", "open"):
                forbidden.setattr(os, name, refuse)
            said, seen = plugin_problems([below]), plugin_fingerprint([below])
            found = list(plugin_sources.folder_files([below]))
        assert "Permission denied" in said[0]
        assert seen != plugin_fingerprint([below])
        with pytest.raises(ConfigError, match="Permission denied"):
            found[0].load()

    def test_a_changed_file_runs_as_it_is_now(self, folder: Path) -> None:
        path = write(folder, "mine.py", GOOD.format(name="aaa"))
        times = path.stat()
        assert "aaa" in load(folder).drafters
        write(folder, "mine.py", GOOD.format(name="bbb"))  # same size, same time: a bytecode cache could not tell
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        assert "bbb" in load(folder).drafters


class TestEntryPoints:
    def install(self, site: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str) -> None:
        (site / f"{name}.py").write_text(textwrap.dedent(text))
        info = site / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[pilotfish]\n{name} = {name}\n")
        monkeypatch.syspath_prepend(site)

    def test_an_installed_distribution_is_loaded(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.install(tmp_path, monkeypatch, "pf_installed", GOOD.format(name="installed"))
        registry = Registry.load()
        assert registry.drafter("installed") is not None
        assert [p.origin for p in registry.plugins if "installed" in p.drafters] == ["entry point"]

    def test_one_that_cannot_be_imported_is_left_out(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.install(tmp_path, monkeypatch, "pf_broken", "\n\nimport json\njson.loads('{')")
        registry = Registry.load()
        assert "suffix" in registry.drafters
        [problem] = registry.problems
        assert problem.plugin.startswith("pf_broken")
        assert problem.where == f"{tmp_path / 'pf_broken.py'}:4"

    def test_one_whose_module_is_gone_is_left_out(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.install(tmp_path, monkeypatch, "pf_gone", "")
        (tmp_path / "pf_gone.py").unlink()
        registry = Registry.load()
        assert "suffix" in registry.drafters
        assert "No module named 'pf_gone'" in registry.problems[0].message


def test_load_file_refuses_before_it_runs_anything(folder: Path) -> None:
    path = write(folder, "open.py", "raise AssertionError('it ran')")
    path.chmod(0o666)
    with pytest.raises(ConfigError):
        plugin_sources.load_file(path)


def test_what_becomes_trusted_or_not_is_another_fingerprint(folder: Path) -> None:
    path = write(folder, "mine.py", GOOD.format(name="mine"))
    good = plugin_fingerprint([folder])
    for place, mode in ((folder.parent, 0o777), (folder, 0o777), (path, 0o666)):
        before = place.stat().st_mode
        place.chmod(mode)
        assert plugin_fingerprint([folder]) != good
        place.chmod(before)
    assert plugin_problems([folder]) == ()


def test_a_traceback_shows_the_lines_that_ran(folder: Path) -> None:
    path = write(folder, "mine.py", "def fail():\n    raise ValueError('as it was')\n")
    module = plugin_sources.load_file(path)
    path.write_text("# another text\n# by now\n")
    try:
        module.fail()
    except ValueError as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
    assert (last.filename, last.lineno, last.line) == (str(path), 2, "raise ValueError('as it was')")
    assert module.__file__ == str(path)
