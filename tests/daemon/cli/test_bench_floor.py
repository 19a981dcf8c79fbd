"""`pilotfish bench --floor` as a person reads it."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from pilotfish.daemon.cli import cli
from pilotfish.daemon.lab import floor_bench, floor_servers
from pilotfish.daemon.lab.floor_bench import OVERLAID, STOCK, Line
from pilotfish.daemon.lab.floor_servers import OllamaReply, Ollamas
from pilotfish.daemon.lab.floor_situations import Figure

REPLY = OllamaReply("ok", 3, 2, "stop", 0.1, 1.0, 0.0)


def line(name: str, stock: float, overlaid: float | None) -> Line:
    made = Line(name, "s")
    made.figures[STOCK].append(Figure(stock, (REPLY,)))
    if overlaid is None:
        made.failures[OVERLAID] = "no room"
    else:
        made.figures[OVERLAID].append(Figure(overlaid, (REPLY,)))
    return made


@pytest.fixture
def bench(monkeypatch, tmp_path):
    """`bench(lines, *options)`: the command, where measuring gives these lines."""
    model = tmp_path / "m.gguf"
    model.touch()
    monkeypatch.setattr(floor_servers, "installed", lambda prefix: Ollamas(tmp_path, tmp_path, "0.33.2"))

    def run(lines, *options):
        async def measure(self, report):
            return lines

        monkeypatch.setattr(floor_bench.FloorBench, "run", measure)
        return CliRunner().invoke(cli, ["bench", str(model), "--floor", *options], catch_exceptions=False)

    return run


def test_one_line_a_situation_and_what_is_short_is_named(bench):
    done = bench([line("load", 2.0, 2.0), line("two chats", 0.35, 6.9)])
    text = " ".join(done.stdout.split())
    assert "load s 2 2 1.00x 1.03x" in text
    assert "two chats s 0.35 6.9 19.71x 1.03x short" in text
    assert "stock is better at: two chats" in text
    assert done.exit_code == 0


def test_nothing_short_is_said(bench):
    assert "nowhere is stock better" in bench([line("load", 2.0, 1.9)]).stdout


def test_what_the_overlaid_one_does_not_answer_is_an_exit_code(bench):
    done = bench([line("past the end", 1.0, None)])
    assert "past the end: overlaid failed: no room" in done.stdout
    assert done.exit_code == 1


def test_the_json_has_every_round(bench):
    done = bench([line("two chats", 0.35, 6.9)], "--json", "-", "--quick")
    found = json.loads(done.stdout)
    assert found["short"] == ["two chats"]
    assert found["lines"][0]["rounds"] == {"stock": [0.35], "overlaid": [6.9]}
    assert found["about"]["rounds"] == 1


@pytest.mark.parametrize(("options", "rounds"), [((), 5), (("--rounds", "3"), 3), (("--quick",), 1)])
def test_medians_are_of_five_unless_somebody_says_otherwise(bench, options, rounds):
    assert json.loads(bench([], "--json", "-", *options).stdout)["about"]["rounds"] == rounds
