"""Recorded answers on a clock of known costs: the ids are the recorded ones, and the figures say what drafts gain."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from pilotfish.daemon.core.loss_account import GRACE, MAX_LOSS
from pilotfish.daemon.lab.recorded_answers import CURVES, Recorded, RecordedModel, every_width, gains, read


@pytest.fixture(autouse=True)
def nothing_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test meets what another one taught."""
    monkeypatch.setenv("PILOTFISH_STATE", str(tmp_path / "state"))


def recorded(kind: str, seed: int = 1) -> Recorded:
    rng = random.Random(seed)
    prompt = tuple(rng.randrange(1000) for _ in range(200))
    ids = prompt[:150] if kind == "copy" else tuple(rng.randrange(1000, 50_000) for _ in range(150))
    return Recorded(f"{kind}-{seed}", kind, "greedy", prompt, ids)


@pytest.mark.parametrize("engine", CURVES)
def test_a_copy_gains_and_what_repeats_nothing_keeps_the_promise(engine: str) -> None:
    replays = RecordedModel(CURVES[engine])
    assert replays.steps(recorded("copy")) < 150 / 1.5
    lost = sum(replays.steps(recorded("open", seed)) - 150 for seed in range(5))
    assert lost <= MAX_LOSS * 5 * 150 + GRACE


def test_costs_that_are_not_known_have_to_be_found_out() -> None:
    known, unknown = (
        RecordedModel(CURVES["llama"], certified=certified).steps(recorded("copy")) for certified in (True, False)
    )
    assert 150 > unknown >= known


def test_widths_between_the_measured_ones_are_on_the_line() -> None:
    assert every_width({1: 1.0, 4: 2.5, 6: 3.0}) == {1: 1.0, 2: 1.5, 3: 2.0, 4: 2.5, 5: 2.75, 6: 3.0}


def test_a_file_is_read_and_reported_by_mode_and_kind(tmp_path: Path) -> None:
    answers = [recorded("copy"), recorded("open")]
    rows = [{"name": a.name, "kind": a.kind, "mode": a.mode, "prompt": a.prompt, "ids": a.ids} for a in answers]
    (tmp_path / "answers.json").write_text(json.dumps(rows))
    assert read(tmp_path / "answers.json") == answers
    lines = list(gains(answers, CURVES["ik"]))
    assert [line.split()[:2] for line in lines] == [["greedy", "copy"], ["greedy", "open"]]
    assert "copy-1" in lines[0]
