"""`pilotfish bench` from the command line to the report, with servers that are processes but hold no model."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from pilotfish.daemon.cli import cli
from pilotfish.daemon.cli.bench import few
from pilotfish.daemon.lab import bench_systems, benchmark, llama_server
from pilotfish.daemon.lab.workloads import Workload
from pilotfish.hooks.errors import EngineError, UsageError
from pilotfish.plugins.verifiers.llama import LlamaVerifier
from tests.daemon.lab.fake_llama_server import as_program

WORKLOADS = {
    "system": "be brief",
    "workloads": [
        {"name": "again", "kind": "copy", "prompt": "Say 31 again."},
        {"name": "tale", "kind": "open", "prompt": "Tell a tale."},
    ],
}


OURS = ["pilotfish (llama) plain", "pilotfish (llama)", "pilotfish (llama) oracle"]
OURS += [name.replace("llama", "ik") for name in OURS]


@pytest.fixture
def bench(tmp_path, monkeypatch, smollm2_path):
    """Run `pilotfish bench` on a machine where every server, the runner too, is the fake one."""
    for name in ("PILOTFISH_STATE", "PILOTFISH_CACHE", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    monkeypatch.delenv(llama_server.ENVIRONMENT, raising=False)
    monkeypatch.setattr(llama_server, "BUILT", tmp_path / "none")
    monkeypatch.setattr(bench_systems, "RUNNER", (str(as_program(tmp_path)),))
    monkeypatch.setattr(benchmark, "SETTLE", 0.0)  # these servers have no threads that would have to go to sleep
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
    done = bench("--full", "--llama-server", str(stock), "--rounds", "2", "--json", str(file))
    assert done.exit_code == 0, done.output
    report = json.loads(file.read_text())
    names = [system["name"] for system in report["systems"]]
    assert names == ["llama-server", "ngram-good", "ngram-wrong", "ngram-broken", *OURS]
    assert report["baseline"] == "llama-server"
    assert report["failures"].keys() == {"ngram-broken"}
    assert "this mode does not load" in report["failures"]["ngram-broken"]
    assert len(report["runs"]) == 9 * 2 * 2 * 2 * 2  # systems, rounds, modes, passes, workloads
    equal = {run["system"]: run["equal"] for run in report["runs"]}
    assert equal == {
        "llama-server": None,
        "ngram-good": True,
        "ngram-wrong": False,
        **{name: None if name.endswith("plain") else True for name in OURS},
    }
    assert report["exact"] is True
    assert report["about"]["llama_server"] == "version: 4711 (fake)"
    assert {"quiet", "load_average", "others", "limit"} == set(report["quiet"])
    assert len(report["quiet"]["others"]) == 4  # a round in a mode is a stretch
    assert {load["system"] for load in report["loads"]} == set(equal)
    assert len(report["loads"]) == 9 * 2 * 2  # systems, rounds, modes
    for words in ("greedy, first pass", "seeded, second pass", "plain ids of its engine in every answer", "4/4", "0/4"):
        assert words in done.output


@pytest.mark.parametrize(("words", "kind"), [((), "Q4_0"), (("--quantization", "F16"), "F16")])
def test_a_model_like_a_larger_one_is_made_in_the_format_asked_for(bench, stock, monkeypatch, words, kind):
    made = []

    def enlarged(source, like, kind, report):
        made.append((like, kind))
        return source

    monkeypatch.setattr("pilotfish.daemon.lab.real_text.enlarged.enlarged", enlarged)
    done = bench("--quick", "--llama-server", str(stock), "--task", "tale", "--like", "3b", *words, "--json", "-")
    assert made == [("3b", kind)]
    assert json.loads(done.stdout)["about"]["weights"] == f"{kind}, like 3b"


def test_without_a_stock_server_the_run_goes_on_and_says_so(bench, monkeypatch):
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    done = bench("--quick", "--json", "-")
    report = json.loads(done.stdout)
    assert report["baseline"] == "pilotfish (llama) plain"
    assert (report["about"]["rounds"], {run["mode"] for run in report["runs"]}) == (1, {"greedy"})
    assert "`make stock`" in done.stderr
    assert report["notes"]


def test_one_system_brings_what_it_is_compared_to(bench, stock):
    done = bench("--quick", "--llama-server", str(stock), "--only", "ngram-good", "--task", "tale", "--json", "-")
    report = json.loads(done.stdout)
    assert [system["name"] for system in report["systems"]] == ["llama-server", "ngram-good", OURS[0]]
    assert {run["workload"] for run in report["runs"]} == {"tale"}


def test_a_quick_look_is_at_the_main_systems_of_every_engine(bench, stock):
    done = bench("--quick", "--llama-server", str(stock), "--task", "tale", "--json", "-")
    report = json.loads(done.stdout)
    assert [system["name"] for system in report["systems"]] == ["llama-server", *OURS[:2], *OURS[3:5]]
    assert report["about"]["certificates"].keys() == {"llama", "ik"}


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["--only", "pilotfish"], [*OURS[:2], *OURS[3:5]]),
        (["--only", "pilotfish (ik)"], OURS[3:5]),
        (["--only", "pilotfish", "--engine", "ik"], OURS[3:5]),
        (["--only", "pilotfish oracle", "--engine", "llama"], [OURS[0], OURS[2]]),
    ],
)
def test_a_part_of_pilotfish_is_named_for_every_engine_or_for_one(bench, stock, words, names):
    done = bench("--quick", "--llama-server", str(stock), "--task", "tale", "--json", "-", *words)
    assert [system["name"] for system in json.loads(done.stdout)["systems"]] == ["llama-server", *names]


def test_an_engine_that_is_not_installed_is_left_out_with_its_remedy(bench, stock, monkeypatch):
    def fingerprint(self, state_dir):
        raise EngineError("libllama is not installed; install it with: pip install 'pilotfish[llama]'")

    monkeypatch.setattr(LlamaVerifier, "fingerprint", fingerprint)
    words = ("--quick", "--llama-server", str(stock), "--task", "tale", "--json", "-")
    done = bench(*words)
    report = json.loads(done.stdout)
    assert [system["name"] for system in report["systems"]] == ["llama-server", *OURS[3:5]]
    assert "no figures of llama: libllama is not installed; install it with: pip install" in done.stderr
    assert report["notes"]
    assert "libllama is not installed" in str(bench(*words, "--engine", "llama").exception)


@pytest.mark.parametrize("broken", [["ik"], ["llama"], ["llama", "ik"]])
def test_an_engine_that_does_not_load_the_model_costs_its_own_figures_only(bench, stock, monkeypatch, broken):
    real = bench_systems.pilotfish_systems

    def systems_of(engine, **options):
        more = ("--spec-type", "ngram-broken") if engine in broken else ()
        return [replace(system, server=(*system.server, *more)) for system in real(engine, **options)]

    monkeypatch.setattr(bench_systems, "pilotfish_systems", systems_of)
    done = bench("--quick", "--llama-server", str(stock), "--task", "tale", "--json", "-")
    if len(broken) == 2:
        assert isinstance(done.exception, EngineError)
        assert str(done.exception).count("this mode does not load") == 2
        return
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    left = [name for name in (*OURS[:2], *OURS[3:5]) if broken[0] not in name]
    assert [system["name"] for system in report["systems"]] == ["llama-server", *left]
    assert report["failures"].keys() == {f"pilotfish ({broken[0]}) plain"}
    assert "this mode does not load" in done.stderr


def test_an_id_of_pilotfish_that_differs_makes_the_command_fail(bench, monkeypatch, stock):
    real = bench_systems.pilotfish_systems

    def with_a_liar(engine, **options):
        systems = real(engine, **options)
        wrong = replace(systems[1], server=(*systems[1].server, "--spec-type", "ngram-wrong"))
        return [systems[0], wrong, *systems[2:]]

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


def test_two_workloads_of_a_kind_are_asked_unless_all_are_wanted():
    many = [Workload(f"{kind} {i}", kind, "", "") for kind in ("copy", "open") for i in range(4)]
    assert [workload.name for workload in few(many)] == ["copy 0", "copy 1", "open 0", "open 1"]
    assert few(many[3:5]) == many[3:5]


def test_a_look_and_everything_exclude_each_other(bench):
    with pytest.raises(UsageError, match="--quick and --full"):
        raise bench("--quick", "--full").exception
