"""A runner with slots, as a process with the real model: four requests at once are what each is alone."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.fakes.state import with_known_lanes
from tests.server_processes import RUNNER, ServerProcess, running
from tests.waiting import wait_until

pytestmark = pytest.mark.model

SLOTS = 4
PROMPTS = ("One, two, three, one, two,", "The capital of France is", "A story about a dog", "List: apple, pear, apple,")
GREEDY = {"temperature": 0, "n_predict": 16, "ignore_eos": True, "return_tokens": True}
SEEDED = {**GREEDY, "temperature": 0.8, "seed": 7}


@pytest.fixture(scope="module", params=["llama", "ik"])
def server(request, quantized, load_engine, tmp_path_factory) -> Iterator[ServerProcess]:
    """Four slots of 512 tokens, in a lane that is known."""
    load_engine(quantized("Q4_0"), verifier=request.param).close()
    folder = with_known_lanes(tmp_path_factory.mktemp(request.param))
    config = folder / "config.toml"
    config.write_text(f'[engine]\nchoice = "{request.param}"\ncertify_budget_s = 0\n')
    env = {"PILOTFISH_STATE": str(folder), "PILOTFISH_CONFIG": str(config), "OMP_WAIT_POLICY": "passive"}
    flags = ("-c", str(SLOTS * 512), "-np", str(SLOTS), "-t", "1")
    with running(RUNNER, quantized("Q4_0"), folder / "log", *flags, env=env) as server:
        yield server


def ids(server: ServerProcess, prompt: str, **options) -> list[int]:
    answer = server.post("/completion", prompt=prompt, **options)
    assert answer.status_code == 200, answer.text
    return answer.json()["tokens"]


def wishes() -> list[tuple[str, dict]]:
    """Greedy and seeded, with drafts and without."""
    options = (GREEDY, SEEDED, {**GREEDY, "speculate": False}, {**SEEDED, "cache_prompt": False})
    return list(zip(PROMPTS, options, strict=True))


def until_idle(server: ServerProcess) -> None:
    wait_until(lambda: not any(slot["is_processing"] for slot in server.http.get("/slots").json()), "it still answers")


def test_four_at_once_are_what_each_is_alone(server):
    alone = [ids(server, prompt, **options) for prompt, options in wishes()]
    with ThreadPoolExecutor(SLOTS) as pool:
        for _ in range(2):
            asked = [pool.submit(ids, server, prompt, **options) for prompt, options in wishes()]
            assert [answer.result() for answer in asked] == alone


def test_every_slot_has_its_share_of_the_context_and_can_be_asked_for(server):
    slots = server.http.get("/slots").json()
    assert [(slot["id"], slot["n_ctx"]) for slot in slots] == [(i, 512) for i in range(SLOTS)]
    assert server.http.get("/props").json()["total_slots"] == SLOTS
    for slot in (2, 0, 5):  # 5 is 1 again, as on stock
        answer = server.post("/completion", prompt="Hi", **GREEDY, id_slot=slot).json()
        assert answer["id_slot"] == slot % SLOTS


def test_all_streams_move(server):
    """Nobody waits for another's end: every stream has brought something before any has ended."""
    moved, ended = threading.Barrier(SLOTS, timeout=60), []

    def follow(prompt: str) -> int:
        with server.http.stream("POST", "/completion", json={"prompt": prompt, **GREEDY, "stream": True}) as response:
            lines = (line for line in response.iter_lines() if line.startswith("data: "))
            next(lines)
            moved.wait()
            count = sum(not json.loads(line[6:])["stop"] for line in lines)
        ended.append(prompt)
        return count + 1

    with ThreadPoolExecutor(SLOTS) as pool:
        assert list(pool.map(follow, PROMPTS)) == [16] * SLOTS
    assert sorted(ended) == sorted(PROMPTS)


def test_one_that_leaves_one_that_overflows_and_one_that_is_wrong_change_nothing_for_the_other(server):
    alone = ids(server, PROMPTS[0], **GREEDY)
    with ThreadPoolExecutor(SLOTS) as pool:
        stayed = pool.submit(ids, server, PROMPTS[0], **GREEDY)
        body = {"prompt": PROMPTS[2], **GREEDY, "n_predict": 400, "stream": True}
        with server.http.stream("POST", "/completion", json=body) as leaving:
            next(leaving.iter_lines())
        long = server.post("/completion", prompt="word " * 600, **GREEDY)
        wrong = server.post("/completion", prompt="Hi", **GREEDY, grammar="nonsense ::= (")
        assert stayed.result() == alone
    assert (long.status_code, long.json()["error"]["type"]) == (400, "exceed_context_size_error")
    assert wrong.status_code == 400
    until_idle(server)
    assert ids(server, PROMPTS[0], **GREEDY) == alone


def test_a_fifth_waits_for_a_slot_and_is_answered(server):
    with ThreadPoolExecutor(2 * SLOTS) as pool:
        asked = [pool.submit(ids, server, PROMPTS[i % SLOTS], **GREEDY) for i in range(2 * SLOTS)]
        found = [answer.result() for answer in asked]
    assert found[:SLOTS] == found[SLOTS:]
    metrics = server.http.get("/metrics").text
    assert "llamacpp:requests_processing 0.0" in metrics
