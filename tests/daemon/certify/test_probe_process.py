"""A probe in a process of its own: what it answers, and that it is killed when time is up."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pilotfish.daemon.certify.probe_driver import Deadline, OutOfTime
from pilotfish.daemon.certify.probe_process import RemoteProbe
from pilotfish.daemon.certify.probe_wire import (
    options_from_json,
    options_to_json,
    pin_from_json,
    pin_to_json,
    setting_from_json,
    setting_to_json,
)
from pilotfish.daemon.lab.fakes.fake_engine import fake_pin
from pilotfish.hooks.errors import BrokenModel, EngineError
from pilotfish.hooks.types import EngineOptions, EngineSetting, FarEnd, TargetPin
from pilotfish.plugins.verifiers.llama import LlamaVerifier

SETTING = EngineSetting("bf16", "f16", environment=(("GGML_CPU_TILED_MM", "0"),))


def test_what_crosses_the_pipe_comes_out_as_it_went_in() -> None:
    assert setting_from_json(setting_to_json(SETTING)) == SETTING
    assert pin_from_json(pin_to_json(fake_pin())) == fake_pin()
    far_ends = (FarEnd("a:1", "libraries 12"), FarEnd("b:2"))
    options = EngineOptions(threads=2, state_dir=Path("/somewhere"), far_ends=far_ends, tensor_split=(1.0, 2.0))
    assert options_from_json(json.loads(json.dumps(options_to_json(options)))) == options


def test_a_model_that_does_not_load_is_an_error_that_names_it() -> None:
    with pytest.raises(BrokenModel, match="fake:latest"):
        RemoteProbe(fake_pin(), SETTING, 3, EngineOptions(), Deadline(60))


def test_a_setting_that_the_engine_does_not_have_is_no_fault_of_the_model() -> None:
    with pytest.raises(EngineError, match=r"no verifier|offers no probe"):
        RemoteProbe(fake_pin(), EngineSetting(engine="none"), 3, EngineOptions(), Deadline(60))


def test_when_time_is_up_the_process_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pilotfish.daemon.certify.probe_process.GRACE", 0.0)
    begun: list[subprocess.Popen[str]] = []
    start = subprocess.Popen

    def remember(*arguments: Any, **options: Any) -> subprocess.Popen[str]:
        begun.append(start(*arguments, **options))
        return begun[-1]

    monkeypatch.setattr(subprocess, "Popen", remember)
    with pytest.raises(OutOfTime):
        RemoteProbe(fake_pin(), SETTING, 3, EngineOptions(), Deadline(0))
    assert [process.returncode for process in begun] == [-signal.SIGKILL]


@pytest.mark.model
def test_rows_of_another_process_are_those_of_this_one(smollm2_path: Path, pin_of: Callable[[Path], TargetPin]) -> None:
    setting = EngineSetting("bf16", "f16")
    options = EngineOptions(n_ctx=256, threads=1)
    here, there = LlamaVerifier().probe(pin_of(smollm2_path), setting, 3, options), None
    try:
        there = RemoteProbe(pin_of(smollm2_path), setting, 3, options, Deadline(120))
        assert (there.n_ctx, there.n_vocab, there.engine) == (here.n_ctx, here.n_vocab, here.engine)
        ids = here.encode("Rows of another process")
        assert there.encode("Rows of another process") == ids
        for probe in (here, there):
            probe.feed(ids[:2])
        assert there.rows(ids[2:4], 3) == here.rows(ids[2:4], 3)
        assert there.seconds > 0
        for probe in (here, there):
            assert probe.cut(2)
        assert there.logits(ids[2:4], 2) == here.logits(ids[2:4], 2)
        for probe in (here, there):
            assert probe.cut(2)
        assert there.rows(ids[2:3], 1) == here.rows(ids[2:3], 1)
        assert there.cells(1) == here.cells(1)
        assert there.trace(ids[3:4], 2) == here.trace(ids[3:4], 2)
        assert there.prompts_apart is here.prompts_apart is True
        for exact in (True, False):
            ours, theirs = here.together(2, exact=exact), there.together(2, exact=exact)
            assert ours is not None
            assert theirs is not None
            assert theirs.joined == ours.joined == 2
    finally:
        here.close()
        if there:
            there.close()
