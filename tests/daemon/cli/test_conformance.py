"""`pilotfish conformance` as a plugin's author meets it."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pilotfish.daemon.cli import cli
from pilotfish.daemon.config import files as config_file
from tests.fakes.plugin_files import GOOD, write


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, folder in (("PILOTFISH_STATE", "state"), ("XDG_CONFIG_HOME", "config")):
        monkeypatch.setenv(name, str(tmp_path / folder))
    monkeypatch.delenv("PILOTFISH_CONFIG", raising=False)
    monkeypatch.setattr(config_file, "SYSTEM_FILE", tmp_path / "etc" / "pilotfish.toml")
    tmp_path.chmod(0o755)
    return tmp_path


def run(*words: object) -> Result:
    environment = {"COLUMNS": "160"}
    return CliRunner(env=environment).invoke(cli, ["conformance", *map(str, words)], catch_exceptions=False)


BAD = GOOD.format(name="mine").replace('name = "mine"', 'name = "mine"\n        suggest = None')


def test_a_sound_plugin_conforms(home: Path) -> None:
    done = run(write(home, "mine.py", GOOD.format(name="mine")))
    assert done.exit_code == 0
    assert "conforms: drafter mine" in done.output
    assert "keeps its history" in done.output
    assert "slowest calls:" in done.output


def test_a_fault_is_shown_with_what_to_do_and_the_exit_status_is_1(home: Path) -> None:
    done = run(write(home, "mine.py", BAD))
    assert done.exit_code == 1
    text = " ".join(done.output.split())
    assert "FAILED" in text
    assert "TypeError: 'NoneType' object is not callable" in text
    assert "mine.py does not conform" in text


def test_the_json_has_every_check_with_its_outcome(home: Path) -> None:
    done = run(write(home, "mine.py", BAD), "--json")
    assert done.exit_code == 1
    report = json.loads(done.stdout)
    assert (report["passed"], report["problems"]) == (False, [])
    [drafter] = report["plugins"]
    assert (drafter["kind"], drafter["name"], drafter["passed"]) == ("drafter", "mine", False)
    assert {check["outcome"] for check in drafter["checks"]} == {"passed", "failed"}
    assert all(check["demand"] and bool(check["seen"]) == (check["outcome"] != "passed") for check in drafter["checks"])
    assert drafter["slowest_ms"]["propose"] >= 0


def test_a_file_that_cannot_be_loaded_says_why(home: Path) -> None:
    done = run(write(home, "mine.py", "raise ValueError('boom')"))
    assert done.exit_code == 1
    assert "ValueError: boom" in done.output
    assert "could not be checked" in done.output


def test_a_built_in_is_checked_by_its_name_with_its_table_and_leaves_nothing_behind(home: Path) -> None:
    folder = home / "config" / "pilotfish"
    folder.mkdir(parents=True)
    (folder / "pilotfish.toml").write_text('[drafters.suffix]\nmemory = "disk"\n')
    done = run("suffix")
    assert done.exit_code == 0, done.output
    assert not (home / "state" / "memory").exists()


def test_a_name_that_nothing_has_is_an_error() -> None:
    with pytest.raises(Exception, match="no drafter is named 'swim'"):
        run("swim")


WITHOUT_PYTEST = """
import sys
sys.modules.update(pytest=None, tests=None, hypothesis=None)
from pilotfish.daemon.cli import main
main(["conformance", *sys.argv[1:]])
"""


def test_it_needs_neither_pytest_nor_a_checkout(home: Path) -> None:
    path = write(home, "mine.py", GOOD.format(name="mine"))
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_PYTEST, path.name, "mine"], cwd=home, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "mine.py conforms: drafter mine" in done.stdout


STILL_WRITING = """
    import os, threading, time
    from pathlib import Path

    def write(folder):
        for number in range(40):
            folder.mkdir(parents=True, exist_ok=True)
            (folder / str(number)).touch()
            time.sleep(0.01)

    threading.Thread(target=write, args=[Path(os.environ["PILOTFISH_STATE"]) / "late"], daemon=True).start()
"""


def test_what_a_drafter_still_writes_when_the_checks_are_over_is_removed_too(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(home / "tmp"))
    (home / "tmp").mkdir()
    done = run(write(home, "mine.py", GOOD.format(name="mine") + STILL_WRITING))
    assert done.exit_code == 0, done.output
    assert list((home / "tmp").glob("pilotfish-conformance-*")) == []
