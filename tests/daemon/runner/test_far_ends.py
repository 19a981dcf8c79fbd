"""A model over two far ends: the same ids with and without drafts, and what a client is told when one is lost.

The runner stands on a floor, as under Ollama: a stock server that would write a file. It must never be asked.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from pilotfish.daemon.processes.ports import free_port
from tests.fakes.state import keep_lanes, with_known_lanes
from tests.far_ends import RunningFarEnd, far_end, rpc_folder
from tests.server_processes import SHIMMED_RUNNER, ServerProcess, running, spawn
from tests.waiting import SECONDS, wait_until

pytestmark = [pytest.mark.rpc, pytest.mark.model, pytest.mark.timeout(300)]

LINES = "def add(a, b):\n    return a + b\n\n" * 3
LONG = 400  # tokens, so that there is time for things to happen
CONTEXT = "2048"
DEADLINE = 3  # seconds


@pytest.fixture(scope="module")
def ends(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[RunningFarEnd]]:
    folder = tmp_path_factory.mktemp("far")
    with far_end(folder, memory=2048) as first, far_end(folder, memory=2048) as second:
        yield [first, second]


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What was found out about the model over these far ends, so that it is not checked at every load."""
    return with_known_lanes(tmp_path_factory.mktemp("known"))


@pytest.fixture
def place(
    tmp_path: Path, quantized: Callable[[str], Path], ends: list[RunningFarEnd], known: Path
) -> Iterator[SimpleNamespace]:
    """Two far ends, a model, and what a runner is started with."""
    stock = tmp_path / "llama-server"
    stock.write_text(f"#!/bin/sh\ntouch {tmp_path / 'became-stock'}\n")
    stock.chmod(0o755)
    for end in ends:
        end.wait_until_free()
    found = SimpleNamespace(folder=tmp_path, model=quantized("Q4_0"), ends=ends)
    found.environment = {
        "PILOTFISH_STATE": str(with_known_lanes(tmp_path / "state", known)),
        "PILOTFISH_CONFIG": str(tmp_path / "pilotfish.toml"),
        "PILOTFISH_STOCK": str(stock),
    }
    configure(found)
    yield found
    keep_lanes(tmp_path / "state", known)
    assert not (tmp_path / "became-stock").exists()


def configure(place: SimpleNamespace, *more: str, rpc: list[str] | None = None) -> None:
    engine = {
        "libllama": str(rpc_folder()),
        "rpc": rpc or [end.endpoint for end in place.ends],
        "rpc_deadline_s": DEADLINE,
    }
    lines = ["[engine]", *(f"{key} = {json.dumps(value)}" for key, value in engine.items()), *more]
    (place.folder / "pilotfish.toml").write_text("\n".join(lines))


@contextmanager
def loaded(place: SimpleNamespace) -> Iterator[ServerProcess]:
    log = place.folder / "runner.log"
    with running(SHIMMED_RUNNER, place.model, log, "-c", CONTEXT, "-t", "1", env=place.environment) as server:
        yield server


def answered(server: ServerProcess, **asked: Any) -> dict[str, Any]:
    answer = server.post("/completion", prompt=LINES, n_predict=64, return_tokens=True, **asked)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def answered_with_drafts(server: ServerProcess, **asked: Any) -> dict[str, Any]:
    """The first answer with accepted drafts: where others keep the cores busy, blocks pay once the drafter remembers an
    answer. All of them have the same ids."""
    before: list[int] = []
    for _ in range(20):
        found = answered(server, **asked)
        assert found["tokens"] == (before or found["tokens"])
        if found["timings"].get("draft_n_accepted"):
            return found
        before = found["tokens"]
    raise AssertionError("no draft was accepted in 20 answers that are alike")


def ids(server: ServerProcess, **asked: Any) -> list[int]:
    found: list[int] = answered(server, **asked)["tokens"]
    return found


def events(server: ServerProcess, **asked: Any) -> Iterator[dict[str, Any]]:
    """Of a streamed answer."""
    body = {"prompt": LINES, "n_predict": LONG, "temperature": 0, "stream": True, "ignore_eos": True, **asked}
    with server.http.stream("POST", "/completion", json=body) as answer:
        for line in answer.iter_lines():
            if line.startswith("data: "):
                yield json.loads(line.removeprefix("data: "))


def interrupted(server: ServerProcess, happens: Callable[[], None]) -> str:
    """What the client is told of an answer in the middle of which that `happens`; the runner ends afterwards."""
    told = events(server)
    assert next(told)["content"]
    happens()
    found = []
    with suppress(httpx.RemoteProtocolError):  # it breaks off
        found.extend(event["error"] for event in told if "error" in event)
    (error,) = found
    assert error["code"] == 500
    assert server.process.wait(SECONDS) == 1
    message: str = error["message"]
    return message


@pytest.mark.parametrize("sampling", [{"temperature": 0}, {"temperature": 0.8, "seed": 3}], ids=["greedy", "seeded"])
def test_ids_are_the_same_with_drafts_and_without(place, sampling):
    with loaded(place) as server:
        for end in place.ends:
            assert end.health()["busy"]
        with_drafts = answered_with_drafts(server, **sampling)
    configure(place, "[speculation]", "enabled = false")
    with loaded(place) as server:
        plain = answered(server, **sampling)
    assert "draft_n" not in plain["timings"]
    assert plain["tokens"] == with_drafts["tokens"]
    assert len(plain["tokens"]) == 64


def test_layers_are_shared_out_as_the_config_says(place):
    configure(place, rpc=[end.endpoint for end in place.ends])
    config = place.folder / "pilotfish.toml"
    config.write_text(config.read_text() + "\ntensor_split = [4, 1]\n")
    with loaded(place):
        taken = [sum(device["total"] - device["free"] for device in end.health()["devices"]) for end in place.ends]
    assert taken[0] > 1.5 * taken[1] > 0


def test_a_far_end_that_is_killed_in_an_answer_ends_it_with_its_name_and_the_next_load_finds_it_again(place):
    with loaded(place) as server:
        before = ids(server, temperature=0)
        message = interrupted(server, place.ends[1].kill_child)
    assert f"the far end {place.ends[1].endpoint} was lost" in message
    place.ends[1].wait_until_free()
    with loaded(place) as server:
        assert ids(server, temperature=0) == before


def test_one_that_is_killed_while_a_prompt_is_read_ends_the_request(place):
    with loaded(place) as server:
        prompt = LINES * 20
        killing = threading.Timer(0.2, place.ends[0].kill_child)
        killing.start()
        answer = server.post("/completion", prompt=prompt, n_predict=LONG, temperature=0, ignore_eos=True)
        killing.join()
        assert answer.status_code == 500
        assert "was lost" in answer.json()["error"]["message"]
        assert server.process.wait(SECONDS) == 1


def test_one_that_is_killed_while_nothing_is_asked_ends_the_runner_before_a_request_meets_that(place):
    with loaded(place) as server:
        place.ends[0].kill_child()
        assert server.process.wait(SECONDS) == 1
        assert f"the far end {place.ends[0].endpoint} has ended" in server.log.read_text()


def test_far_ends_that_hang_are_given_up_after_the_deadline(place):
    with loaded(place) as server:
        message = interrupted(server, place.ends[0].pause)
        place.ends[0].resume()
    assert f"were silent for {DEADLINE} s" in message


def test_one_whose_process_alone_hangs_is_given_up_as_soon_and_has_another_for_the_next_load(place):
    with loaded(place) as server:
        message = interrupted(server, place.ends[0].child.suspend)
    assert f"were silent for {DEADLINE} s" in message
    place.ends[0].wait_until_free()
    with loaded(place) as server:
        assert ids(server, temperature=0)


def test_a_runner_that_is_told_to_end_does_so_although_a_far_end_hangs(place):
    configure(place, "cache_disk_mib = 64")  # so that there is something to be read from there
    with loaded(place) as server:
        ids(server, temperature=0)
        place.ends[0].pause()
        try:
            server.process.terminate()
            assert server.process.wait(SECONDS) == 0
        finally:
            place.ends[0].resume()


def test_one_that_hangs_while_the_loaded_model_is_checked_ends_the_load(place):
    log = place.folder / "runner.log"
    unknown = {**place.environment, "PILOTFISH_STATE": str(place.folder / "nothing-known")}
    server = spawn(SHIMMED_RUNNER, place.model, log, "-c", CONTEXT, "-t", "1", env=unknown)
    server.http.close()
    wait_until(lambda: "sched_reserve: reserve took" in log.read_text(), "it is not loaded", SECONDS)
    place.ends[0].pause()
    try:
        assert server.process.wait(SECONDS) == 1
    finally:
        place.ends[0].resume()
    (why,) = (line for line in log.read_text().splitlines() if line.startswith("error: "))
    assert "was lost (it was silent for " in why


def refused(place: SimpleNamespace) -> str:
    """The log of a runner that cannot load."""
    log = place.folder / "runner.log"
    server = spawn(SHIMMED_RUNNER, place.model, log, "-c", CONTEXT, "-t", "1", env=place.environment)
    server.http.close()
    assert server.process.wait(SECONDS) == 1
    return log.read_text()


def test_one_that_is_missing_is_named_with_what_to_do(place):
    missing = f"127.0.0.1:{free_port()}"
    configure(place, rpc=[place.ends[0].endpoint, missing])
    assert f"{missing} refuses connections" in refused(place)
    assert not place.ends[0].health()["busy"]


def test_one_that_serves_somebody_else_is_named_with_whom(place):
    with loaded(place):
        assert f"{place.ends[0].endpoint} serves 127.0.0.1:" in refused(place)


def test_too_little_memory_over_there_is_an_error_and_the_far_ends_stay(tmp_path, place):
    with ExitStack() as stack:
        small: list[RunningFarEnd] = [stack.enter_context(far_end(tmp_path, memory=24)) for _ in range(2)]
        configure(place, rpc=[end.endpoint for end in small])
        assert "give them more memory" in refused(place)
        for end in small:
            end.wait_until_free()
            assert end.health()["restarts"] == 0


def test_without_far_ends_it_loads_here_only_where_the_config_says_so(place):
    configure(place, "rpc_fallback = true", rpc=[f"127.0.0.1:{free_port()}"])
    with loaded(place) as server:
        assert len(ids(server, temperature=0)) == 64
        assert "loading without far ends" in server.log.read_text()
        wait_until(lambda: httpx.get(f"http://{place.ends[0].endpoint}/health").status_code == 200)
    assert not place.ends[0].health()["busy"]
