"""Starting, sharing, keeping and ending runners."""

from __future__ import annotations

import asyncio
import math
import os
import signal
from datetime import UTC, datetime, timedelta

import pytest

from pilotfish.daemon.front.runners import Runners
from tests.waiting import until

ENDLESS = {"model": "tiny", "prompt": "endless"}


def ask(front, **changes):
    return front.ask("/api/generate", {"model": "tiny", "prompt": "echo:ok", "stream": False, **changes})


def pids(front):
    return [int(entry["pid"]) for entry in front.journal_of("start")]


async def loaded(front):
    return [entry["name"] for entry in (await front.get("/api/ps"))["models"]]


async def test_the_launch_is_ollamas(front):
    await ask(front, options={"num_ctx": 2048, "num_thread": 2, "num_batch": 64})
    argv = front.journal_of("start")[0]["argv"]
    assert argv[0] == "--model"
    assert os.path.basename(argv[1]).startswith("sha256-")  # noqa: PTH119  # a string of the journal, not a path here
    joined = " ".join(argv)
    for part in ("--host 127.0.0.1", "-c 2048 -np 1", "-b 64 -ub 64", "-t 2", "--no-webui --offline"):
        assert part in joined


@pytest.mark.parametrize("context", [0, -1, 3, 4])
async def test_no_context_is_smaller_than_ollamas_smallest_and_no_batch_is_the_engines_own(front, context):
    status, _ = await ask(front, prompt="a", options={"num_ctx": context, "num_batch": 0})
    argv = " ".join(front.journal_of("start")[0]["argv"])
    assert status == 200
    assert "-c 4 -np 1" in argv
    assert " -b " not in argv


@pytest.mark.parametrize(
    ("first", "second", "loads"),
    [
        ({"num_gpu": 0}, {}, 1),  # who does not say takes the layers as they are
        ({}, {"num_gpu": 0}, 2),
        ({"num_thread": 1}, {}, 2),
        ({"num_thread": -3, "num_gpu": -7, "num_batch": -1}, {"num_batch": 0}, 1),
        ({"num_ctx": 10**6}, {"num_ctx": 10**7}, 1),  # both are what the model was trained for
        ({"num_predict": 1, "seed": 3}, {"num_keep": 9}, 1),
    ],
)
async def test_a_runner_is_replaced_only_for_what_it_was_started_with(front, first, second, loads):
    for options in (first, second):
        assert (await ask(front, options=options))[0] == 200
    assert len(front.journal_of("start")) == loads


async def test_several_requests_at_a_time_are_several_slots_of_a_full_context_each(start):
    async with start(parallel=4) as front:
        await ask(front, options={"num_ctx": 2048})
        assert "-c 8192 -np 4" in " ".join(front.journal_of("start")[0]["argv"])
        listed = (await front.get("/api/ps"))["models"]
    assert [entry["context_length"] for entry in listed] == [2048]


async def test_who_comes_when_too_many_wait_for_a_load_is_turned_away(start, monkeypatch):
    begun, loaded = [], Runners._loaded
    monkeypatch.setattr(Runners, "_loaded", lambda self, *wanted: (begun.append(wanted), loaded(self, *wanted))[1])
    async with start("--load-seconds", "1", max_queue=2) as front:
        waiting = [asyncio.create_task(ask(front)) for _ in range(2)]
        await until(lambda: len(begun) == 2)
        busy = await ask(front)
        answers = await asyncio.gather(*waiting)
        at_hand = await asyncio.gather(*(ask(front) for _ in range(4)))
    assert busy == (503, {"error": "server busy, please try again.  maximum pending requests exceeded"})
    assert [status for status, _ in [*answers, *at_hand]] == [200] * 6


async def test_requests_at_once_share_one_load(start):
    async with start("--load-seconds", "0.3") as front:
        answers = await asyncio.gather(*(ask(front) for _ in range(5)))
        assert [status for status, _ in answers] == [200] * 5
        assert len(front.journal_of("start")) == 1


async def test_the_same_weights_under_two_names_share_a_runner(front, store):
    store.add_gguf("alias", store.blob(store.manifest("tiny").layers[0]))
    await ask(front)
    await ask(front, model="alias")
    assert len(front.journal_of("start")) == 1


async def test_another_context_length_reloads_and_the_models_own_limit_holds(front):
    await ask(front)
    await ask(front, options={"num_ctx": 1024})
    await ask(front, options={"num_ctx": 1024, "seed": 3})
    await ask(front, options={"num_ctx": 1_000_000})
    contexts = [entry["argv"][entry["argv"].index("-c") + 1] for entry in front.journal_of("start")]
    assert contexts == ["4096", "1024", "4096"]
    assert await loaded(front) == ["tiny:latest"]


@pytest.fixture
def queued(monkeypatch):
    """What found no runner that it could use, and waits for one: `(model, num_ctx)` of each."""
    found, usable = set(), Runners._usable

    def watched(self, model, launch):
        slot = usable(self, model, launch)
        if slot is None:
            found.add((model.short, launch.num_ctx))
        return slot

    monkeypatch.setattr(Runners, "_usable", watched)
    return found


async def test_a_reload_waits_for_the_answer_that_runs(front, queued):
    async with front.post("/api/generate", ENDLESS) as running:
        await running.content.readline()
        waiting = asyncio.create_task(ask(front, options={"num_ctx": 1024}))
        await until(lambda: ("tiny:latest", 1024) in queued)
        later = asyncio.create_task(ask(front))
        await until(lambda: ("tiny:latest", 4096) in queued)  # behind the reload: it must not starve it
        assert not waiting.done()
        assert not later.done()
        running.close()
    assert [(await waiting)[0], (await later)[0]] == [200, 200]


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_leaves_cancels_its_generation(front, stream):
    async def leave() -> None:
        async with front.post("/api/generate", {**ENDLESS, "stream": stream}) as response:
            await response.content.readline()

    if stream:
        await leave()
    else:
        request = asyncio.create_task(leave())
        await until(lambda: front.journal_of("completion"))
        request.cancel()
    await until(lambda: front.journal_of("cancelled"))
    assert (await ask(front))[1]["response"] == "ok"
    assert len(front.journal_of("start")) == 1


async def test_keep_alive_ends_an_idle_runner(front):
    await ask(front, keep_alive="100ms")
    await front.until_unloaded()
    await ask(front, keep_alive=0)
    assert await loaded(front) == []
    assert len(front.journal_of("start")) == 2


async def expires(front):
    (entry,) = (await front.get("/api/ps"))["models"]
    return datetime.fromisoformat(entry["expires_at"])


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/generate", {"model": "tiny", "prompt": "echo:ok", "stream": False}),
        ("/v1/chat/completions", {"model": "tiny", "messages": [{"role": "user", "content": "echo:ok"}]}),
    ],
)
async def test_only_a_request_that_says_so_changes_how_long_a_model_stays(front, path, body):
    for keep_alive, at_least in ((-1, timedelta(days=280 * 365)), ("1h", timedelta(minutes=50)), (1e12, timedelta(1))):
        await ask(front, keep_alive=keep_alive)
        assert (await front.ask(path, body))[0] == 200
        assert await expires(front) - datetime.now(UTC) > at_least


async def test_a_short_stay_is_not_prolonged_by_a_request_that_asks_for_none(front):
    await ask(front, keep_alive="100ms")
    await ask(front)
    await front.until_unloaded()  # with the default of five minutes, the test's own deadline would end it


async def test_a_model_that_is_loaded_anew_stays_as_long_as_the_settings_say(start):
    async with start(keep_alive=math.inf) as front:
        await ask(front, keep_alive="1h")
        await ask(front, options={"num_ctx": 1024})
        assert (await expires(front)).year > 2300


async def test_a_busy_runner_is_unloaded_after_its_answer(front):
    async with front.post("/api/generate", ENDLESS) as running:
        await running.content.readline()
        _, answer = await front.ask("/api/generate", {"model": "tiny", "keep_alive": 0})
        assert answer["done_reason"] == "unload"
        assert await loaded(front) == ["tiny:latest"]
        assert await running.content.readline()  # it goes on
    await front.until_unloaded()


async def test_no_more_models_than_allowed_stay_loaded(start, queued):
    async with start(max_loaded=1) as front:
        await ask(front)
        await ask(front, model="bare")
        assert await loaded(front) == ["bare:latest"]
        async with front.post("/api/generate", {**ENDLESS, "model": "bare"}) as running:
            await running.content.readline()
            queued.clear()
            waiting = asyncio.create_task(ask(front))
            await until(lambda: ("tiny:latest", 4096) in queued)
            assert not waiting.done()
        assert (await waiting)[0] == 200
        assert await loaded(front) == ["tiny:latest"]


async def test_the_idle_model_that_would_go_first_makes_room(start):
    async with start(max_loaded=2) as front:
        await ask(front, keep_alive="1h")
        await ask(front, model="bare", keep_alive="2h")
        await ask(front, model="other:v2")
        assert sorted(await loaded(front)) == ["bare:latest", "other:v2"]


async def test_a_killed_idle_runner_is_replaced_at_the_next_request(front):
    await ask(front)
    (entry,) = front.journal_of("start")
    os.kill(entry["pid"], signal.SIGKILL)
    assert (await ask(front))[1]["response"] == "ok"
    assert len(front.journal_of("start")) == 2


async def test_leaving_the_front_ends_every_runner(start):
    async with start() as front:
        await ask(front, keep_alive=-1)
        (pid,) = pids(front)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_a_client_that_leaves_during_the_load_leaves_a_loaded_model(start):
    async with start("--load-seconds", "0.4") as front:
        request = asyncio.create_task(ask(front))
        await until(lambda: front.journal_of("start"))
        request.cancel()
        assert (await ask(front))[0] == 200
        assert len(front.journal_of("start")) == 1


async def test_a_table_of_runners_closes_twice_without_harm(start):
    async with start() as front:
        runners = Runners(front.settings)
        await runners.aclose()
        await runners.aclose()
        assert runners.loaded() == []
