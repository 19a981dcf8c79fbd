"""`pilotfish parity` from the command line to the report, on a model that answers at once."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial

import pytest
from click.testing import CliRunner

from pilotfish.daemon.cli import cli, parity
from pilotfish.daemon.lab import floor_servers, parity_course
from pilotfish.daemon.lab.floor_servers import Ollamas
from pilotfish.daemon.lab.parity_ollama import OllamaCourse, OllamaParity, OllamaTrial
from pilotfish.daemon.lab.parity_subject import Subject
from pilotfish.daemon.lab.subjects import Weights
from pilotfish.hooks.errors import EngineError, ModelNotFound, UsageError
from tests.plugins.verifiers.tiny_gguf import write_sliding_window

WORKLOADS = {
    "system": "",
    "workloads": [
        {"name": "again", "kind": "copy", "prompt": "Say 31 again."},
        {"name": "tale", "kind": "open", "prompt": "Tell a tale."},
    ],
}
CONTENDERS = 4


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return write_sliding_window(tmp_path_factory.mktemp("tiny") / "tiny.gguf")


@pytest.fixture
def compare(tmp_path, monkeypatch, tiny):
    """Run `pilotfish parity` with `ik` and answers of 4 tokens."""
    for name in ("PILOTFISH_STATE", "PILOTFISH_CACHE", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    (tmp_path / "workloads.json").write_text(json.dumps(WORKLOADS))

    def run(*words: str):
        given = ("parity", str(tiny), "--workloads", str(tmp_path / "workloads.json"), "--engine", "ik")
        return CliRunner().invoke(cli, [*given, "--tokens", "4", "--threads", "1", *words])

    return run


@pytest.fixture
def full_set(monkeypatch, tiny):
    """`--full` means these weights: a pair of which one can be missing."""

    def give(*findings):
        weights = tuple(Weights(f"weights {i}", find) for i, find in enumerate(findings))
        monkeypatch.setattr(parity, "full_set", lambda source: weights)

    return give


def absent(error: Exception):
    raise error


@pytest.mark.model
def test_every_answer_is_compared_at_every_depth_and_kept_as_it_comes(compare, tmp_path):
    log = tmp_path / "trials.jsonl"
    done = compare("--depth", "0,300", "--jsonl", str(log), "--json")
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    trials = report["trials"]
    assert (report["equal"], report["differences"], report["missing"]) == (True, 0, {})
    assert [json.loads(line) for line in log.read_text().splitlines()] == trials
    assert len(trials) == 2 * 2 * 2 * CONTENDERS  # depths, workloads, modes
    assert {trial["tokens"] for trial in trials} <= {1, 2, 3, 4}
    for trial in trials:
        assert (trial["prompt"] >= 300) is (trial["depth"] == 300)
    assert "after 0 tokens of text: 16 speculative answers" in done.stderr
    assert "after 300 tokens of text: 16 speculative answers" in done.stderr


@pytest.mark.model
def test_the_work_can_be_divided_and_a_log_goes_on_where_it_ended(compare, tmp_path):
    log = tmp_path / "trials.jsonl"
    for task in ("again", "tale"):
        done = compare("--task", task, "--mode", "seeded", "--jsonl", str(log))
        assert done.exit_code == 0, done.output
        assert "every id is equal" in done.stdout
    trials = [json.loads(line) for line in log.read_text().splitlines()]
    assert [(trial["workload"], trial["mode"]) for trial in trials] == [
        *[("again", "seeded")] * CONTENDERS,
        *[("tale", "seeded")] * CONTENDERS,
    ]


@pytest.mark.model
def test_weights_that_cannot_be_had_are_named_and_the_others_compared(compare, full_set, tiny):
    full_set(partial(absent, ModelNotFound("no such: pip install a[b]")), lambda: tiny)
    done = compare("--full", "--depth", "0", "--task", "tale")
    assert done.exit_code == 0, done.output
    assert "weights 0 was left out: no such: pip install a[b]" in done.stdout
    assert "weights 1: ik: no flash" in done.stdout


@pytest.mark.model
def test_some_of_the_weights_can_be_compared_alone(compare, monkeypatch, tiny):
    weights = (Weights("Q8_0", partial(absent, EngineError("needs libllama"))), Weights("Q4_0", lambda: tiny))
    monkeypatch.setattr(parity, "full_set", lambda source: weights)
    done = compare("--full", "--weights", "Q4_0", "--depth", "0", "--task", "tale")
    assert done.exit_code == 0
    assert "needs libllama" not in done.output
    assert "divides --full" in str(compare("--weights", "Q4_0").exception)


def test_no_weights_at_all_is_an_error(compare, full_set):
    full_set(partial(absent, EngineError("needs libllama")), partial(absent, ModelNotFound("not installed")))
    assert str(compare("--full").exception) == "not installed"


@pytest.mark.model
def test_depths_and_room_for_them_come_with_full(compare, full_set, tiny, monkeypatch):
    full_set(lambda: tiny)
    asked = []

    def load(*given, options, **others):
        asked.append(options.n_ctx)
        raise EngineError("enough")

    monkeypatch.setattr(parity_course, "Subject", type("S", (Subject,), {"load": staticmethod(load)}))
    assert str(compare("--full").exception) == "enough"
    assert str(compare("--full", "--depth", "9000").exception) == "enough"
    assert asked == [4096, 9000 + 4 + parity_course.ROOM]


@pytest.mark.parametrize("text", ["deep", "0,-1", "", "1,,2"])
def test_a_depth_that_is_no_count_is_refused_with_an_example(compare, text):
    done = compare("--depth", text)
    assert done.exit_code == 2
    assert "such as 0,2000" in done.output


def test_what_is_unknown_is_said_before_anything_is_loaded(compare):
    done = compare("--task", "poem")
    assert isinstance(done.exception, UsageError)
    assert str(done.exception) == "--task poem: unknown; there are again, tale"


@pytest.mark.model
def test_a_run_that_was_broken_off_goes_on_from_its_log(compare, tmp_path):
    log = tmp_path / "trials.jsonl"
    assert compare("--jsonl", str(log)).exit_code == 0
    lines = log.read_text().splitlines(keepends=True)
    log.write_text("".join(lines[:5]) + lines[5][:40])  # killed while it wrote the sixth
    done = compare("--jsonl", str(log), "--resume", "--json")
    assert done.exit_code == 0, done.output
    kept, broken, *new = log.read_text().splitlines(keepends=True)[4:]
    assert (kept, broken) == (lines[4], lines[5][:40] + "\n")
    asked = [json.loads(line)["pins"] for line in lines]
    assert [json.loads(line)["pins"] for line in new] == asked[5:]
    assert [trial["pins"] for trial in json.loads(done.stdout)["trials"]] == asked


@pytest.mark.model
def test_a_log_of_other_settings_or_weights_counts_for_nothing(compare, tmp_path):
    log = tmp_path / "trials.jsonl"
    done = compare("--task", "tale", "--jsonl", str(log))
    assert done.exit_code == 0
    first = log.read_text().splitlines()
    for other in (("--tokens", "3"), ("--threads", "2"), ("--prompts", "lane")):
        assert compare("--task", "tale", "--jsonl", str(log), "--resume", *other).exit_code == 0
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        assert len(lines) == 2 * len(first), other
        assert len({line["pins"]["settings"] for line in lines}) == len(lines)
        log.write_text("\n".join(first) + "\n")
    other_weights = [{**json.loads(line), "pins": {"weights": "w", "engine": "e", "settings": "s"}} for line in first]
    log.write_text("".join(json.dumps(line) + "\n" for line in other_weights))
    assert compare("--task", "tale", "--jsonl", str(log), "--resume").exit_code == 0
    assert len(log.read_text().splitlines()) == 2 * len(first)


@pytest.mark.model
def test_a_difference_that_was_found_before_is_not_forgotten(compare, tmp_path):
    log = tmp_path / "trials.jsonl"
    assert compare("--task", "tale", "--jsonl", str(log)).exit_code == 0
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    lines[2]["differs_at"] = 1
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = compare("--task", "tale", "--jsonl", str(log), "--resume")
    assert done.exit_code == 1
    assert "1 answers differ" in done.stdout


@pytest.mark.model
def test_both_ways_of_reading_prompts_are_compared(compare):
    done = compare(
        "--task", "tale", "--mode", "greedy", "--depth", "300", "--prompts", "fast", "--prompts", "lane", "--json"
    )
    assert done.exit_code == 0, done.output
    trials = json.loads(done.stdout)["trials"]
    assert [trial["prompts"] for trial in trials] == ["lane"] * CONTENDERS + ["fast"] * CONTENDERS


@pytest.mark.model
def test_chats_are_compared_together(compare, tmp_path):
    log = tmp_path / "trials.jsonl"
    done = compare("--together", "--mixes", "2", "--jsonl", str(log))
    assert done.exit_code == 0, done.output
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert len(lines) == 2 * 2 * 4 * 2 * 2  # prompts, mixes, drafting, chats, turns
    assert {(line["prompts"], line["drafting"]) for line in lines} == {
        (prompts, drafting) for prompts in ("lane", "fast") for drafting in ("off", "on", "mixed", "as it pays")
    }
    assert "every id is equal: 64 answers beside others" in done.stdout
    again = compare("--together", "--mixes", "2", "--jsonl", str(log), "--resume")
    assert again.exit_code == 0
    assert len(log.read_text().splitlines()) == len(lines)
    assert "every id is equal: 64 answers beside others" in again.stdout


def test_what_does_not_go_together_is_refused(compare):
    assert "--jsonl" in str(compare("--resume").exception)
    assert "--drafter" in str(compare("--together", "--drafter", "suffix").exception)
    for alone in (("--overlay", "."), ("--cache-type", "q8_0")):
        assert "about --ollama" in str(compare(*alone).exception)


@pytest.mark.parametrize(
    "other", [("--full",), ("--together",), ("--mixes", "1"), ("--control",), ("--prompts", "lane")]
)
def test_under_ollama_everything_is_as_ollama_has_it(compare, other):
    done = compare("--ollama", *other)
    assert isinstance(done.exception, UsageError)
    assert "no part in --ollama" in str(done.exception)


@pytest.mark.parametrize(("broken", "code"), [("", 0), ("stock", 0), ("junk", 1)])
def test_under_ollama_rows_that_differ_with_drafts_are_an_exit_code(compare, monkeypatch, tmp_path, broken, code):
    async def run(self, starting):
        trial = OllamaTrial("again", "greedy", 1, 9, 4, None, same_rows=True)
        return [
            OllamaCourse(title, "a lane", "lane", 3, 2, 1, (replace(trial, same_rows=title != broken),))
            for title in ("plain", "stock", "junk")
        ]

    monkeypatch.setattr(floor_servers, "installed", lambda prefix: Ollamas(tmp_path, tmp_path, "0.33.2"))
    monkeypatch.setattr(OllamaParity, "run", run)
    done = compare("--ollama")
    assert done.exit_code == code, done.output
    assert ("rows differ with drafts" in done.stdout) is bool(code)
