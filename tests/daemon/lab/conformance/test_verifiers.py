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
from pilotfish.daemon.lab.conformance.verifiers import ENGINE_CHECKS
from pilotfish.hooks.errors import BrokenModel
from pilotfish.lab.conformance import VerifierConformance
from tests.fakes.plugin_files import write
from tests.manifests.builders import tiny_gguf

PLUGIN = """
    from pilotfish.hooks import hookimpl
    from pilotfish.hooks.errors import EngineError
    from pilotfish.lab.fakes import FakeEngine, LeakyEngine, RememberingEngine


    class Lavish(FakeEngine):
        def open(self, prompt, sampling, *, cache_prompt=True, slot=None):
            self._caches = [cache or [] for cache in self._caches]
            return super().open(prompt, sampling, cache_prompt=cache_prompt, slot=slot)


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
    assert len(found.results) == len(ENGINE_CHECKS) + 3  # it loads, begins texts, and closes
    assert found.note == ""


def test_one_whose_rows_depend_on_the_width_is_caught(folder: Path, model: Path) -> None:
    found = verdict(folder, model, "return FakeEngine(noise=True)")
    failed = {result.check: result.seen for result in found.results if result.outcome == FAILED}
    assert "the answer in forwards of 2 tokens" in failed["perfect proposals change nothing"]


@pytest.mark.parametrize("engine", ["FakeEngine(slots=3, joins=16)", "RememberingEngine(slots=options.slots, joins=6)"])
def test_one_with_slots_passes_every_check(folder: Path, model: Path, engine: str) -> None:
    found = verdict(folder, model, f"return {engine}")
    assert {result.seen for result in found.results if result.outcome != PASSED} == set()


@pytest.mark.parametrize(
    ("engine", "check", "seen"),
    [
        ("LeakyEngine(slots=3)", "keeps slots apart", "row 0 of slot 0 of 3 in turns"),
        ("LeakyEngine(slots=2, joins=8)", "verifies together as alone", "of 2 in a forward of 1 tokens each"),
        ("LeakyEngine(slots=3)", "an end changes no other", "while others ended"),
        ("FakeEngine(slots=2, joins=8, noise=True)", "verifies together as alone", "row 0 of session 0 of 2"),
        ("RememberingEngine(confused=True)", "remembers and changes nothing", "the next turn of a conversation"),
        ("Lavish(slots=3)", "gives the slot asked for", "which was taken, was let pass"),
    ],
)
def test_one_whose_slots_or_memory_change_rows_is_caught(
    folder: Path, model: Path, engine: str, check: str, seen: str
) -> None:
    found = verdict(folder, model, f"return {engine}")
    failed = {result.check: result.seen for result in found.results if result.outcome == FAILED}
    assert seen in failed[check]


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
    tests = [getattr(VerifierConformance, name) for name in dir(VerifierConformance) if name.startswith("test_")]
    used = set().union(*(test.__code__.co_names for test in tests))
    assert {check.__name__ for check in ENGINE_CHECKS} <= used
