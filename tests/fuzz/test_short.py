"""The short form of the campaign, and that the campaign itself finds what there is to find."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest

from tests.fuzz import campaign, files, reading, wire
from tests.fuzz.campaign import Case, Fault, Result, Usage
from tests.fuzz.mutations import Mutator

SEED = "short"
BODIES = 100  # for each server
FILES = 100  # for each reader


def found(result: Result) -> str:
    return "\n".join(map(str, result.findings))


@pytest.mark.parametrize("server", wire.SERVERS, ids=lambda server: server.name)
def test_a_server_answers_whatever_it_is_sent(server: wire.Server, tmp_path: Path) -> None:
    with wire.serving(server, tmp_path) as target:
        result = campaign.run(target, BODIES, SEED)
    assert not result.findings, found(result)


@pytest.mark.parametrize("name", files.TARGETS)
def test_a_reader_raises_only_what_it_promises(name: str, tmp_path: Path) -> None:
    with files.opened(files.TARGETS[name], tmp_path / name) as target:
        result = campaign.run(target, FILES, SEED)
    assert not result.findings, found(result)


class Fragile:
    """A target that breaks at a list in `a` and, for that, keeps everything it was ever given."""

    name = "fragile"

    def __init__(self, *, leaks: int = 0) -> None:
        self.taken: list[bytes] = []
        self.leaks = leaks

    def make(self, random: Random) -> Case:
        return Case("it", Mutator(random).json({"a": {"b": 1}, "c": "some text", "d": [1, 2, 3]}))

    def take(self, case: Case) -> None:
        self.taken.append(case.data)
        try:
            value = json.loads(case.data)
        except (ValueError, RecursionError):
            return
        if isinstance(value, dict) and isinstance(value.get("a"), list):
            raise Fault("a list", f"{len(value)} keys")

    def probe(self) -> None:
        pass

    def usage(self) -> Usage:
        return Usage(self.leaks * len(self.taken), 0)


def test_a_finding_names_a_seed_that_makes_it_again_and_is_made_small() -> None:
    result = campaign.run(Fragile(), 300, SEED)
    [finding] = result.findings
    assert result.inputs == 300
    assert json.loads(finding.case.data) == {"a": []}
    assert result.seen["a list"] > 1
    [same] = campaign.again(Fragile(), finding.seed).findings
    assert str(same) == str(finding)
    assert finding.seed in str(finding)


def test_the_same_seed_makes_the_same_inputs_and_another_makes_others() -> None:
    taken = []
    for seed in ("one", "one", "two"):
        target = Fragile()
        campaign.run(target, 20, seed)
        taken.append(target.taken)
    assert taken[0] == taken[1]
    assert taken[0] != taken[2]


def test_what_grows_is_a_finding() -> None:
    result = campaign.run(Fragile(leaks=1 << 20), 300, "growing")
    assert "it grew from" in str(result.findings[-1])


def test_a_reader_that_computes_for_too_long_is_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Endless(reading.Files):
        def read(self, data: bytes) -> None:
            while True:
                pass

    monkeypatch.setattr(reading, "SECONDS", 0.05)
    with pytest.raises(Fault, match="of the processor"):
        Endless(tmp_path).take(Case("it", b""))


def test_a_reader_that_raises_something_else_is_a_finding_that_names_the_place(tmp_path: Path) -> None:
    class Surprising(reading.Files):
        def read(self, data: bytes) -> None:
            raise ZeroDivisionError

    with pytest.raises(Fault, match=r"ZeroDivisionError in test_short\.py:read"):
        Surprising(tmp_path).take(Case("it", b""))


def test_the_binary_fields_of_the_sound_model_file_are_a_model_file(tmp_path: Path) -> None:
    path = tmp_path / "sound.gguf"
    path.write_bytes(files.Gguf(tmp_path).sound())
    metadata = files.read_metadata(path)
    assert (metadata.architecture, metadata.context_length, metadata.matrix_types) == ("llama", 512, {"Q4_0": 2})
