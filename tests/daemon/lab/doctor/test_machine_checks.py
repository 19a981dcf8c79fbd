"""What the doctor finds around the models."""

from __future__ import annotations

from pathlib import Path

import pytest

from pilotfish.daemon.config.reader import to_table
from pilotfish.daemon.config.types import Config, Engine, Speculation
from pilotfish.daemon.lab.doctor.examination import examine
from pilotfish.daemon.lab.doctor.finding import Level
from pilotfish.daemon.lab.doctor.machine_checks import (
    config_findings,
    device_findings,
    engine_findings,
    ollama_findings,
    plugin_findings,
)
from pilotfish.hooks.types import Parity
from pilotfish.manifests.store import Skipped
from tests.daemon.lab.doctor.examined import fitting_overlay, surroundings


def test_where_all_is_well_there_is_nothing_to_say():
    assert examine(surroundings()) == []


def test_a_config_that_is_not_in_force_is_a_problem():
    (found,) = config_findings(surroundings(config_error="pilotfish.toml: line 3: unknown key"))
    assert (found.level, found.what) == (Level.PROBLEM, "pilotfish.toml: line 3: unknown key")


@pytest.mark.parametrize(
    ("config", "level", "what"),
    [
        (Config(Speculation(enabled=False)), Level.NOTE, "switched off"),
        (Config(Speculation(parity=Parity.NONE)), Level.WARNING, 'parity is "none"'),
        (Config(engine=Engine(prompts="lane")), Level.NOTE, "prompts are read"),
    ],
)
def test_settings_that_cost_something_are_named_with_the_way_back(config, level, what):
    (found,) = config_findings(surroundings(in_force=to_table(config)))
    assert found.level == level
    assert what in found.what
    assert found.remedy


def test_plugins_and_drafters_that_are_left_out_are_named():
    runner = {"model": "m", "problems": ["no daemon"], "pool": {}}
    runner["pool"] = {"llama": {"state": "dropped", "about": "too large"}, "suffix": {"state": "ready", "about": ""}}
    found = list(plugin_findings(surroundings(plugin_problems=["a.py: no hook"], runners=[runner])))
    assert [finding.about for finding in found] == ["plugins", "m", "m"]
    assert found[1].what == "the drafter llama is dropped: too large"


def test_without_any_engine_there_is_a_problem_and_with_another_one_a_warning():
    none = list(engine_findings(surroundings(here=[], engine_problems=["llama: broken"])))
    assert [finding.level for finding in none] == [Level.PROBLEM]
    some = list(engine_findings(surroundings(here=["ik"], engine_problems=["llama: broken"])))
    assert [finding.level for finding in some] == [Level.WARNING, Level.NOTE]


def test_kernels_that_could_be_built_are_named_with_the_command():
    assert list(engine_findings(surroundings())) == []
    (found,) = engine_findings(surroundings(kernels_lack=True))
    assert (found.level, found.remedy) == (Level.NOTE, "pilotfish kernels-build")


def test_the_overlay_and_what_answers_are_compared():
    def said(**changes):
        return [(finding.level, finding.what) for finding in ollama_findings(surroundings(**changes))]

    assert said(ollama_version="") == [(Level.NOTE, "no server answers at http://127.0.0.1:11434")]
    assert said(overlay={"record": None, "drift": []}) == [(Level.NOTE, "none is installed")]
    assert said(overlay=None) == [(Level.WARNING, "its state cannot be read")]
    assert said(overlay=fitting_overlay(drift=["the binary is another"])) == [(Level.PROBLEM, "the binary is another")]
    assert said(overlay=fitting_overlay(dirty=True)) == [(Level.WARNING, "the build has local changes")]
    (other,) = said(ollama_version="0.40.0")
    assert other == (Level.WARNING, "version 0.40.0 answers at http://127.0.0.1:11434, the overlay is of 0.33.2")


def test_who_holds_a_device_is_named():
    found = list(device_findings(surroundings(held={"NV:0": "process 7 on box (train.py)"}, daemon=False)))
    assert [(finding.about, finding.what) for finding in found] == [
        ("NV:0", "held by process 7 on box (train.py)"),
        ("daemon", "it does not run"),
    ]


def test_what_matters_most_comes_first():
    around = surroundings(daemon=False, config_error="bad", skipped=[Skipped(Path("x"), "no JSON")])
    assert [finding.level for finding in examine(around)] == [Level.PROBLEM, Level.WARNING, Level.NOTE]
