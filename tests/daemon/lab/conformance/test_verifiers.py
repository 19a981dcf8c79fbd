"""A plugin's verifiers under `pilotfish conformance`: each loads the model it is given, and has to be exact."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from pilotfish.daemon.cli import cli
from pilotfish.daemon.config.types import Config
from pilotfish.daemon.lab.conformance.plugin import Setup, examine_file
from pilotfish.daemon.lab.conformance.report import FAILED, NOT_RUN, PASSED, Verdict
from pilotfish.daemon.lab.conformance.verifier_checks import VERIFIER_CHECKS
from pilotfish.hooks.errors import BrokenModel
from pilotfish.lab.conformance import VerifierConformance
from tests.fakes.plugin_files import write
from tests.manifests.builders import tiny_gguf

PLUGIN = """
    from pilotfish.hooks import hookimpl
    from pilotfish.hooks.errors import EngineError
    from pilotfish.lab.fakes import FakeEngine


    class Mine:
        name = "mine"

        def load(self, pin, lane, options):
            {load}


    @hookimpl
    def pilotfish_register_verifiers(register):
        register("mine", lambda table: Mine())
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tmp_path.chmod(0o755)
    return tmp_path


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return tiny_gguf(tmp_path / "tiny.gguf")


def verdict(folder: Path, model: Path | None, load: str) -> Verdict:
    path = write(folder, "mine.py", PLUGIN.format(load=load))
    [found] = examine_file(path, Setup(Config(), model=model)).verdicts
    return found


def test_without_a_model_it_is_told_what_is_needed(folder: Path) -> None:
    found = verdict(folder, None, "return FakeEngine()")
    assert (found.kind, found.results) == ("verifier", ())
    assert "--model FILE.gguf" in found.note


def test_an_exact_one_passes_every_check(folder: Path, model: Path) -> None:
    found = verdict(folder, model, "return FakeEngine()")
    assert {result.outcome for result in found.results} == {PASSED}
    assert len(found.results) == len(VERIFIER_CHECKS) + 2  # it loads, and closes
    assert found.note == ""


def test_one_whose_rows_depend_on_the_width_is_caught(folder: Path, model: Path) -> None:
    found = verdict(folder, model, "return FakeEngine(noise=True)")
    failed = {result.check: result.seen for result in found.results if result.outcome == FAILED}
    assert "the answer in forwards of 2 tokens" in failed["perfect proposals change nothing"]


def test_one_that_loads_nothing_is_asked_nothing_more(folder: Path, model: Path) -> None:
    found = verdict(folder, model, "raise EngineError('no such device')")
    assert (found.results[0].check, found.results[0].outcome) == ("loads", FAILED)
    assert "no such device" in found.results[0].seen
    assert {result.outcome for result in found.results[1:]} == {NOT_RUN}


def test_one_that_never_drafts_is_told_what_was_not_seen(folder: Path, model: Path) -> None:
    found = verdict(folder, model, "return FakeEngine(widths=(1,))")
    assert found.passed
    assert "a lane of one width" in found.note


def test_a_model_that_is_none_is_an_error(folder: Path) -> None:
    path = folder / "notes.gguf"
    path.write_text("no model at all")
    with pytest.raises(BrokenModel, match="is not a GGUF file"):
        verdict(folder, path, "return FakeEngine()")


def test_the_command_takes_the_model(folder: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PILOTFISH_STATE", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(folder / name))
    path = write(folder, "mine.py", PLUGIN.format(load="return FakeEngine()"))
    done = CliRunner().invoke(cli, ["conformance", str(path), "--model", str(model), "--json"], catch_exceptions=False)
    assert done.exit_code == 0
    [found] = json.loads(done.stdout)["plugins"]
    assert (found["kind"], found["name"], found["passed"]) == ("verifier", "mine", True)


def test_the_pytest_suite_has_a_test_for_every_check() -> None:
    tests = [test for name, test in vars(VerifierConformance).items() if name.startswith("test_")]
    used = set().union(*(test.__code__.co_names for test in tests))
    assert {check.__name__ for check in VERIFIER_CHECKS} <= used
