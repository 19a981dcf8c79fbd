"""Drafters that have something to load: what is asked of them before the first session and after the last."""

from __future__ import annotations

from pathlib import Path

import pytest

from pilotfish.daemon.config.types import Config
from pilotfish.daemon.lab.conformance import Verdict
from pilotfish.daemon.lab.conformance.plugin import Setup, examine_file
from tests.fakes.plugin_files import write

PLUGIN = """
from pilotfish.hooks import EMPTY, HistoryDrafter, hookimpl
from pilotfish.hooks.drafting import HistorySession
from pilotfish.hooks.errors import EngineError
from pilotfish.hooks.types import Footprint
from pilotfish.hooks.vocabulary import ByteVocabulary


class Drafter(HistoryDrafter):
    name = "mine"
    vocabulary = None
    loaded = 0
    loads = 0

    def footprint(self, host, target, options):
        {footprint}

    def load(self, host, target, options):
        self.loads += 1
        {load}

    def unload(self):
        {unload}

    def open(self, target, prompt):
        assert self.loaded == 1
        return HistorySession(self, prompt)

    def suggest(self, tokens, k):
        return {suggest}


@hookimpl
def pilotfish_register_drafters(register):
    register("mine", Drafter)
"""

SOUND = {"footprint": "return Footprint(1, 2)", "load": "self.loaded = 1", "unload": "self.loaded = 0", "suggest": "()"}


def examine(folder: Path, **parts: str) -> Verdict:
    folder.chmod(0o755)
    path = write(folder, "mine.py", PLUGIN.format(**{**SOUND, **parts}))
    [verdict] = examine_file(path, Setup(Config())).verdicts
    return verdict


def failures(verdict: Verdict) -> list[tuple[str, str]]:
    return [(result.check, result.seen) for result in verdict.results if result.outcome == "failed"]


def test_it_is_loaded_first_and_unloaded_last(tmp_path: Path) -> None:
    verdict = examine(tmp_path)
    assert failures(verdict) == []
    assert [verdict.results[1].check, verdict.results[-1].check] == ["loads", "unloads and loads again"]


def test_its_ids_are_those_of_its_own_vocabulary(tmp_path: Path) -> None:
    mine = "self.loaded = 1; self.vocabulary = ByteVocabulary()"
    assert failures(examine(tmp_path, load=mine, suggest="[255] * k")) == []
    assert "outside the vocabulary of 256 ids" in failures(examine(tmp_path, load=mine, suggest="[256] * k"))[0][1]


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ({"load": "raise EngineError('no device NV; plug it in')"}, "EngineError: no device NV; plug it in"),
        ({"load": "self.vocabulary = 'bytes'"}, "its vocabulary is a str"),
        ({"footprint": "return 100"}, "footprint returned a int; return a Footprint, or None"),
        ({"footprint": "return Footprint(-1, 0)"}, "neither figure can be negative"),
        ({"footprint": "return 1 // 0"}, "footprint(host, target, options) raised ZeroDivisionError"),
    ],
)
def test_what_cannot_be_loaded_is_not_asked_for_sessions(tmp_path: Path, part: dict[str, str], words: str) -> None:
    verdict = examine(tmp_path, **part)
    [(check, seen)] = failures(verdict)
    assert check == "loads"
    assert words in seen
    assert {result.outcome for result in verdict.results[2:]} == {"not run"}


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ({"unload": "assert self.loaded; self.loaded = 0"}, "unload() raised AssertionError"),
        ({"load": "assert self.loads == 1; self.loaded = 1"}, "load(host, target, options) raised AssertionError"),
    ],
)
def test_one_that_can_be_loaded_only_once_is_caught(tmp_path: Path, part: dict[str, str], words: str) -> None:
    [(check, seen)] = failures(examine(tmp_path, **part))
    assert check == "unloads and loads again"
    assert words in seen
