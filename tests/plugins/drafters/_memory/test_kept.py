"""What a model's requests taught outlives the process, and nothing that is wrong with the file stops anything."""

from __future__ import annotations

import json
from array import array
from pathlib import Path

import pytest

from pilotfish.lab.fakes import fake_pin
from pilotfish.plugins.drafters._memory.files import MemoryOwner
from pilotfish.plugins.drafters._memory.kept import KeptTaught, kept_file
from pilotfish.plugins.drafters._suffix.calibration import N_CELLS, Taught
from pilotfish.plugins.drafters._suffix.priors import priors
from pilotfish.plugins.drafters.suffix import SuffixDrafter

OWNER = MemoryOwner.of(fake_pin())
EVEN = array("d", [0.5] * N_CELLS)


def kept(path: Path) -> tuple[KeptTaught, Taught]:
    taught = Taught(EVEN)
    held = KeptTaught(path, OWNER, taught)
    assert held.flush(60)
    return held, taught


def write(path: Path, right: float = 9.0, seen: float = 10.0) -> None:
    held, taught = kept(path)
    taught.add(3, right, seen)
    held.changed()
    assert held.flush(60)


def test_the_next_process_begins_with_what_was_taught(tmp_path: Path) -> None:
    write(tmp_path / "a" / "b.json")
    _, taught = kept(tmp_path / "a" / "b.json")
    assert taught.estimate(3) == pytest.approx((9 + 12 * 0.5) / 22)
    assert taught.estimate(4) == 0.5


def test_only_the_owner_can_read_it_and_no_ids_are_in_it(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b.json"
    write(path)
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert json.loads(path.read_text()).keys() == {"version", "model", "weights", "right", "seen"}


def test_models_are_kept_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PILOTFISH_STATE", str(tmp_path))
    drafter = SuffixDrafter()
    for n_vocab in (32, 64):
        session = drafter.open(fake_pin(n_vocab), [1, 2, 3, 1, 2])
        session.propose(2)
        session.commit([3])
        session.close()
    drafter.flush()
    assert kept_file(OWNER).is_file()
    assert len(list((tmp_path / "suffix").iterdir())) == len({MemoryOwner.of(fake_pin(n)).key for n in (32, 64)})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        '{"version": 1}',
        json.dumps({"version": 1, "right": [1], "seen": [1]}),
        json.dumps({"version": 1, "right": ["x"] * N_CELLS, "seen": [1] * N_CELLS}),
        json.dumps({"version": 1, "right": [2] * N_CELLS, "seen": [1] * N_CELLS}),
        json.dumps({"version": 1, "right": [1e9] * N_CELLS, "seen": [1e9] * N_CELLS}),
        json.dumps({"version": 99, "right": [1] * N_CELLS, "seen": [1] * N_CELLS}),
        json.dumps({"version": 1, "right": [10**400] * N_CELLS, "seen": [1] * N_CELLS}),
        "[" * 100_000,
        " " * (2 << 20),
    ],
)
def test_a_file_that_is_not_ours_is_passed_over_and_written_anew(tmp_path: Path, text: str) -> None:
    path = tmp_path / "b.json"
    path.write_text(text)
    _, taught = kept(path)
    assert taught.estimate(3) == 0.5
    write(path)
    assert kept(path)[1].estimate(3) > 0.5


def test_a_disk_that_fails_costs_a_line_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("in the way")
    held, taught = kept(tmp_path / "file" / "b.json")
    for _ in range(2):
        taught.add(3, 1, 1)
        held.changed()
        assert held.flush(60)
    assert caplog.text.count("what suffix learns is not kept") == 1


def test_what_comes_with_the_product_is_a_probability_for_each_cell() -> None:
    assert len(priors()) == N_CELLS
    assert all(0 < prior < 1 for prior in priors())
