"""`pilotfish lab far-ends`: its tables, its JSON and its exit code; and once in earnest, over two far ends."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from pilotfish.daemon.cli import cli, lab_far_ends
from pilotfish.daemon.lab.spread import spread_course
from pilotfish.daemon.lab.spread.spread_row import BlockCost, SpreadAnswer, SpreadRow
from pilotfish.hooks.errors import UsageError
from tests.far_ends import rpc_folder

COPY = SpreadAnswer("edit", "copy", "greedy", (1, 2), (16.0,), (70.4,), 20, 18, equal=True, apart=True)
OPEN = replace(COPY, workload="summary", kind="open", speculative=(16.0,), apart=None, mode="seeded")
BLOCKS = (BlockCost(1, 0.05, True), BlockCost(2, 0.055, True), BlockCost(16, 0.11, False))
ROW = SpreadRow(0.0, 2.5, "flash, K bf16, V f16", (1, 2, 4), blocks=BLOCKS, answers=(COPY, OPEN))


@pytest.fixture
def lab(tmp_path, monkeypatch):
    for name in ("PILOTFISH_STATE", "PILOTFISH_CACHE", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    monkeypatch.setenv("LLAMA_CPP_LIB_PATH", "unset afterwards")
    return lambda *words: CliRunner().invoke(cli, ["lab", "far-ends", *words])


@pytest.fixture
def measured(monkeypatch):
    """What is measured is `rows`, and what was asked for."""
    asked = {}

    def give(*rows):
        class Course:
            def __init__(self, path, far_ends, delays, size, **more):
                asked.update(path=path, far_ends=far_ends, delays=delays, size=size)

            def run(self):
                yield from (replace(row, delay=delay) for row, delay in zip(rows, asked["delays"], strict=False))

        @contextlib.contextmanager
        def hosts(count, size, libllama):
            asked.update(host=size, libllama=libllama)
            yield (("127.0.0.1", 1),) * count

        monkeypatch.setattr(spread_course, "SpreadCourse", Course)
        monkeypatch.setattr(lab_far_ends, "far_hosts", hosts)
        monkeypatch.setattr(lab_far_ends, "_weights", lambda *words: Path("m.gguf"))
        return asked

    return give


def line_with(text, *words):
    return next(" ".join(line.split()) for line in text.splitlines() if all(word in line for word in words))


def test_tables_have_a_row_for_each_delay_and_answer(lab, measured):
    measured(ROW, ROW)
    done = lab("--delays", "2,10")
    assert done.exit_code == 0
    assert line_with(done.stdout, "10 ms", "50.0 ms") == "10 ms 50.0 ms 1.10 2.20 1, 2"
    assert line_with(done.stdout, "2 ms", "copy") == "2 ms 16.0 70.4 4.40x 18 of 20 equal copy, greedy"
    assert "2 ms: ready in 2.5 s, lane flash, K bf16, V f16, widths 1 to 2, 4" in done.stdout
    assert "all ids are equal in 4 answers" in done.stdout


def test_far_ends_are_as_asked_for(lab, measured, tmp_path):
    asked = measured(ROW)
    words = ["--ends", "3", "--threads", "2", "--memory", "512", "--tokens", "24", "--rounds", "1", "--delays", "0.5"]
    assert lab(*words, "--libllama", str(tmp_path)).exit_code == 0
    assert (len(asked["far_ends"]), asked["host"].threads, asked["host"].memory) == (3, 2, 512)
    assert (asked["size"].tokens, asked["size"].rounds, asked["size"].threads) == (24, 1, 2)
    assert asked["delays"] == (0.0005,)
    assert asked["libllama"] == str(tmp_path)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (replace(ROW, answers=(replace(COPY, equal=False),)), "ids differ in 1 of 1 answers"),
        (replace(ROW, answers=(COPY, replace(COPY, apart=False))), "ids differ in 1 of 2 answers"),
        (SpreadRow(0.0, failed="loading: the far end was lost"), "0 ms: failed: loading: the far end was lost"),
    ],
)
def test_ids_that_differ_and_delays_that_fail_end_with_1(lab, measured, row, said):
    measured(row)
    done = lab("--delays", "0")
    assert done.exit_code == 1
    assert said in done.stdout


def test_the_report_has_everything(lab, measured, tmp_path):
    measured(ROW)
    lab("--delays", "0", "--json", str(tmp_path / "report.json"))
    report = json.loads((tmp_path / "report.json").read_text())
    assert [SpreadRow.from_json(row) for row in report["rows"]] == [ROW]
    assert (report["model"], report["ends"], report["size"]["tokens"]) == ("m.gguf", 2, 96)


@pytest.mark.parametrize("delays", ["", "soon", "-1", "2,5000"])
def test_delays_that_are_none_are_refused(lab, delays):
    failed = lab("--delays", delays)
    assert isinstance(failed.exception, UsageError)
    assert "--delays" in str(failed.exception)


@pytest.mark.rpc
@pytest.mark.model
def test_over_two_far_ends_every_id_is_that_of_the_same_split_alone(lab, tmp_path, quantized):
    report = tmp_path / "report.json"
    words = ["--delays", "0", "--tokens", "24", "--rounds", "1", "--memory", "256", "--json", str(report)]
    done = lab(str(quantized("Q4_0")), *words, "--libllama", str(rpc_folder()))
    assert done.exit_code == 0, done.stdout
    (row,) = [SpreadRow.from_json(row) for row in json.loads(report.read_text())["rows"]]
    assert max(row.widths) == 16
    assert row.equal_widths == (1, 2, 4, 8, 16, 32)
    assert [answer.apart for answer in row.answers] == [True, True, None, None]
    assert all(answer.equal and answer.ids for answer in row.answers)
