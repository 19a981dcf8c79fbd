"""Situations on servers that note what they are asked, and what becomes of the figures."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import pytest

from pilotfish.daemon.control import decision_log
from pilotfish.daemon.lab.floor_bench import OVERLAID, STOCK, FloorBench, Line, document, measured
from pilotfish.daemon.lab.floor_servers import OllamaReply, Ollamas
from pilotfish.daemon.lab.floor_situations import Figure, FloorSizes, situations
from pilotfish.hooks.errors import WorldError

SIZES = FloorSizes(prompts=(20, 40), chats=((2, 30), (3, 20)), answer=8, long_prompt=60, context=256, short_context=64)
NAMED = {situation.name: situation for situation in situations(SIZES)}


class NotingServer:
    """Answers at once and notes what it was asked: `prompts` in order; every request takes `seconds`."""

    def __init__(self, name: str, seconds: float = 1.0, refuses: str = "") -> None:
        self.name, self.seconds, self.refuses = name, seconds, refuses
        self.prompts: list[str] = []
        self.options: list[dict] = []
        self.peak = 3 << 20

    async def generate(self, model, prompt, options):
        self.prompts.append(prompt)
        self.options.append(dict(options))
        if self.refuses:
            raise WorldError(self.refuses)
        return OllamaReply("ok", len(prompt.split()), options["num_predict"], "length", 0.5, self.seconds, 0.25)

    async def chat(self, model, messages, options):
        return await self.generate(model, " ".join(message["content"] for message in messages), options)

    async def unload(self, model):
        self.prompts.append("unload")

    def memory(self):
        return 2 << 20


async def line_of(name, *servers, rounds=2):
    return await measured(NAMED[name], servers, SIZES, rounds, 1.0)


@pytest.mark.parametrize("name", NAMED)
async def test_both_are_asked_the_same_and_answer_everything(name):
    stock, overlaid = NotingServer(STOCK), NotingServer(OVERLAID)
    line = await line_of(name, stock, overlaid)
    assert stock.prompts == overlaid.prompts
    assert stock.options == overlaid.options
    assert line.answered
    assert line.equal_counts
    assert [len(figures) for figures in line.figures.values()] == [2, 2]


async def test_no_round_asks_what_another_one_asked():
    server = NotingServer(STOCK)
    await line_of("fresh prompt, 40 tokens", server, rounds=5)
    assert len({prompt[:25] for prompt in server.prompts}) == 5
    assert {len(prompt.split()) for prompt in server.prompts} == {40}


async def test_equal_requests_are_equal_and_different_ones_are_not():
    server = NotingServer(STOCK)
    await line_of("4 equal requests at once", server, rounds=1)
    assert len(set(server.prompts[1:])) == 1
    server.prompts.clear()
    await line_of("4 different requests at once", server, rounds=1)
    assert len(set(server.prompts[1:])) == 4


async def test_chats_take_turns_and_go_on():
    server = NotingServer(STOCK)
    await line_of("3 chats in turns, 20 tokens", server, rounds=1)
    first, second = server.prompts[:3], server.prompts[3:6]
    assert all(later.startswith(earlier) for earlier, later in zip(first, second, strict=True))
    assert len(server.prompts) == 9


async def test_a_ratio_is_to_stock_and_what_is_dearer_is_short():
    line = await line_of("fresh prompt, 20 tokens", NotingServer(STOCK, 2.0), NotingServer(OVERLAID, 2.5))
    assert (line.median(STOCK), line.median(OVERLAID), line.ratio) == (2.0, 2.5, 1.25)
    assert line.short
    cheaper = await line_of("fresh prompt, 20 tokens", NotingServer(STOCK, 2.0), NotingServer(OVERLAID, 2.0))
    assert not cheaper.short


async def test_a_noisy_round_is_as_noisy_for_both():
    """Both take three times as long in one round, and the machine gets slower all the time."""
    stock, overlaid, line = NotingServer(STOCK), NotingServer(OVERLAID), Line("a", "s")
    for noise in (1.0, 3.0, 1.2, 1.4, 1.6):
        for server, seconds in ((stock, 2.0), (overlaid, 2.02)):
            line.figures[server.name].append(Figure(noise * seconds, ()))
    assert line.ratio == pytest.approx(1.01)
    assert not line.short


async def test_what_is_asked_of_chats_and_of_copies_is_said_with_them():
    allowed = {name: situation.allowed for name, situation in NAMED.items()}
    assert {name for name, limit in allowed.items() if limit == 1.10} == {
        "2 chats in turns, 30 tokens",
        "3 chats in turns, 20 tokens",
    }
    assert [name for name, limit in allowed.items() if limit == 1.0] == ["4 equal requests at once"]
    assert set(allowed.values()) == {1.0, 1.03, 1.10}
    line = await line_of("4 equal requests at once", NotingServer(STOCK), NotingServer(OVERLAID))
    assert line.to_json()["allowed"] == 1.0


async def test_the_model_that_cannot_speculate_is_gone_before_memory_is_looked_at_again():
    server = NotingServer(STOCK)
    await line_of("model that cannot speculate", server, rounds=1)
    assert server.prompts[-1] == "unload"


async def test_a_round_goes_through_all_situations_before_the_next(tmp_path, monkeypatch):
    seen = []

    @contextlib.asynccontextmanager
    async def servers(self, models, parallel):
        yield [NotingServer(STOCK), NotingServer(OVERLAID)]

    monkeypatch.setattr(FloorBench, "_servers", servers)
    monkeypatch.setattr(FloorBench, "_store", lambda self: tmp_path)
    bench = FloorBench(Ollamas(tmp_path, tmp_path, "0.33.2"), tmp_path / "m.gguf", 2, tmp_path, SIZES)
    lines = await bench.run(seen.append)
    assert [line.name for line in lines] == list(NAMED)
    assert all(len(figures) == 2 for line in lines for figures in line.figures.values())
    alone = [name for name, situation in NAMED.items() if situation.parallel == 1]
    assert seen[: 2 * len(alone)] == [f"{name}, round {number} of 2" for number in (1, 2) for name in alone]


async def test_a_refusal_is_a_failure_of_the_line_and_the_other_server_is_measured():
    line = await line_of("fresh prompt, 20 tokens", NotingServer(STOCK), NotingServer(OVERLAID, refuses="no room"))
    assert line.failures == {OVERLAID: "no room"}
    assert (line.answered, line.short, line.ratio) == (False, True, None)
    assert line.to_json()[STOCK] == 1.0


async def test_counts_that_differ_are_seen():
    class Brief(NotingServer):
        async def generate(self, model, prompt, options):
            return replace(await super().generate(model, prompt, options), tokens=1)

    line = await line_of("fresh prompt, 20 tokens", NotingServer(STOCK), Brief(OVERLAID))
    assert line.equal_counts, "one token was asked for"
    line = await line_of("answer that copies", NotingServer(STOCK), Brief(OVERLAID))
    assert not line.equal_counts


async def test_load_is_what_ollama_says_of_a_model_that_was_not_loaded():
    server = NotingServer(STOCK)
    line = await line_of("load", server, rounds=1)
    assert server.prompts == ["unload", "Hi"]
    assert line.median(STOCK) == 0.25


async def test_memory_is_counted_in_mebibytes():
    assert (await line_of("memory at rest", NotingServer(STOCK))).median(STOCK) == 2.0
    assert (await line_of("memory at its peak", NotingServer(STOCK))).median(STOCK) == 3.0


def test_a_model_that_stock_serves_in_both_is_no_secret(tmp_path):
    bench = FloorBench(Ollamas(tmp_path, tmp_path, "0.33.2"), tmp_path / "m.gguf", 1, tmp_path)
    assert bench.why_stock() == ""
    state = tmp_path / f"{OVERLAID}-1" / "state"
    decision_log.record(state, "floor:latest", "runner", "speculation is on")
    decision_log.record(state, "floor-plain:latest", "stock", "nothing to gain")
    assert bench.why_stock() == ""
    decision_log.record(state, "floor:latest", "stock", "the runner cannot be started")
    assert bench.why_stock() == "the runner cannot be started"
    assert document(bench, [], {})["left_to_stock"] == "the runner cannot be started"
