"""`pilotfish bench` from the command line to the report, with servers that are processes but hold no model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from pilotfish.daemon.cli import cli
from pilotfish.daemon.lab import bench_systems, llama_server
from pilotfish.hooks.errors import UsageError
from tests.daemon.lab.fake_llama_server import as_program

WORKLOADS = {
    "system": "be brief",
    "workloads": [
        {"name": "again", "kind": "copy", "prompt": "Say 31 again."},
        {"name": "tale", "kind": "open", "prompt": "Tell a tale."},
    ],
}


@pytest.fixture
def bench(tmp_path, monkeypatch, smollm2_path):
    """Run `pilotfish bench` on a machine where every server, the runner too, is the fake one."""
    for name in ("PILOTFISH_STATE", "PILOTFISH_CACHE", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    monkeypatch.delenv(llama_server.ENVIRONMENT, raising=False)
    monkeypatch.setattr(llama_server, "BUILT", tmp_path / "none")
    monkeypatch.setattr(bench_systems, "RUNNER", (str(as_program(tmp_path)),))
    (tmp_path / "workloads.json").write_text(json.dumps(WORKLOADS))

    def run(*words: str, **options: object):
        given = ("bench", str(smollm2_path), "--workloads", str(tmp_path / "workloads.json"), "--no-certify")
        return CliRunner().invoke(cli, [*given, "--tokens", "4", "--threads", "1", *words], **options)

    return run


@pytest.fixture
def stock(tmp_path) -> Path:
    (tmp_path / "stock").mkdir()
    return as_program(tmp_path / "stock")


def test_everything_is_measured_side_by_side_and_reported(bench, stock, tmp_path):
    file = tmp_path / "report.json"
    done = bench("--llama-server", str(stock), "--rounds", "2", "--json", str(file))
    assert done.exit_code == 0, done.output
    report = json.loads(file.read_text())
    names = [system["name"] for system in report["systems"]]
    ours = ["pilotfish plain", "pilotfish", "pilotfish oracle"]
    assert names == ["llama-server", "ngram-good", "ngram-wrong", "ngram-broken", *ours]
    assert report["baseline"] == "llama-server"
    assert report["failures"].keys() == {"ngram-broken"}
    assert "this mode does not load" in report["failures"]["ngram-broken"]
    assert len(report["runs"]) == 6 * 2 * 2 * 2 * 2  # systems, rounds, modes, passes, workloads
    equal = {run["system"]: run["equal"] for run in report["runs"]}
    assert equal == {
        "llama-server": None,
        "ngram-good": True,
        "ngram-wrong": False,
        "pilotfish plain": None,
        "pilotfish": True,
        "pilotfish oracle": True,
    }
    assert report["exact"] is True
    assert report["about"]["llama_server"] == "version: 4711 (fake)"
    assert {"quiet", "load_average", "others", "limit"} == set(report["quiet"])
    assert len(report["quiet"]["others"]) == 4  # a round in a mode is a stretch
    for words in ("greedy, first pass", "seeded, second pass", "own plain ids in every answer", "4/4", "0/4"):
        assert words in done.output


def test_without_a_stock_server_the_run_goes_on_and_says_so(bench, monkeypatch):
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    done = bench("--quick", "--json", "-")
    report = json.loads(done.stdout)
    assert report["baseline"] == "pilotfish plain"
    assert (report["about"]["rounds"], {run["mode"] for run in report["runs"]}) == (1, {"greedy"})
    assert "`make stock`" in done.stderr
    assert report["notes"]


def test_one_system_brings_what_it_is_compared_to(bench, stock):
    done = bench("--quick", "--llama-server", str(stock), "--only", "ngram-good", "--task", "tale", "--json", "-")
    report = json.loads(done.stdout)
    assert [system["name"] for system in report["systems"]] == ["llama-server", "ngram-good", "pilotfish plain"]
    assert {run["workload"] for run in report["runs"]} == {"tale"}


def test_an_id_of_pilotfish_that_differs_makes_the_command_fail(bench, monkeypatch, stock):
    real = bench_systems.pilotfish_systems

    def with_a_liar(**options):
        systems = real(**options)
        server = (*systems[1].server, "--spec-type", "ngram-wrong")
        return [systems[0], bench_systems.System("pilotfish", "", systems[0].name, server), *systems[2:]]

    monkeypatch.setattr(bench_systems, "pilotfish_systems", with_a_liar)
    done = bench("--quick", "--llama-server", str(stock))
    assert done.exit_code == 1
    assert "ids differ" in done.output


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--only", "vllm"), "--only vllm: unknown; there are llama-server, ngram-good"),
        (("--task", "poem"), "--task poem: unknown; there are again, tale"),
        (("--mode", "beam"), "--mode beam: unknown; there are greedy, seeded"),
        (("--url", "here"), "--url here: not NAME=URL"),
    ],
)
def test_what_is_unknown_is_said_before_anything_starts(bench, stock, words, complaint):
    done = bench("--llama-server", str(stock), *words)
    assert isinstance(done.exception, UsageError)
    assert str(done.exception).startswith(complaint)


def test_the_chart_is_drawn_from_what_was_measured(bench, tmp_path):
    pytest.importorskip("matplotlib")  # an extra, for charts alone
    done = bench("--quick", "--task", "again", "--svg", str(tmp_path / "chart.svg"))
    assert done.exit_code == 0, done.output
    assert "ids equal 1/1" in (tmp_path / "chart.svg").read_text()


def test_a_chart_that_cannot_be_drawn_is_refused_before_the_measurement(bench, monkeypatch, tmp_path):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    done = bench("--png", str(tmp_path / "chart.png"))
    assert isinstance(done.exception, UsageError)
    assert "pilotfish[bench]" in str(done.exception)
