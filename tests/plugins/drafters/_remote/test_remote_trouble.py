"""Servers that are dead, slow, wrong or malicious: an error that names the address, and never an id."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from pilotfish.daemon.drafthost.listening import Endpoint
from pilotfish.daemon.processes.ports import free_port
from pilotfish.hooks.errors import ProtocolViolation, WorldError
from pilotfish.hooks.history import History
from pilotfish.hooks.types import Ack, EngineOptions
from pilotfish.lab.fakes import FakeClock, ScriptedDrafter, fake_pin
from pilotfish.plugins.drafters._remote.breaker import Breaker
from pilotfish.plugins.drafters.remote import RemoteDrafter
from tests.fakes.far import json_server, local_host, raw_server, serving

PROMPT = [5, 6, 7, 8]
PATIENT = {"timeout_s": 60, "connect_timeout_s": 60, "load_timeout_s": 60}
HURRIED = {"timeout_s": 0.2, "connect_timeout_s": 0.2, "load_timeout_s": 0.3}  # for servers that never answer


def remote(url: str, **table: object) -> RemoteDrafter:
    """A drafter that waits for its answers, not loaded yet."""
    return RemoteDrafter({"url": url, **PATIENT, **table})


def load(drafter: RemoteDrafter) -> RemoteDrafter:
    drafter.load(local_host(Path("/nonexistent")), fake_pin(), EngineOptions(n_ctx=64))
    return drafter


def protocol(turn: Callable[[list[Any]], Any]) -> Callable[[str, Mapping[str, Any]], Any]:
    """A draft host that is sound until a session's first turn, which `turn(steps)` answers."""

    def answer(path: str, body: Mapping[str, Any]) -> Any:
        if path == "/v1/draft":
            return {"protocol": 1, "drafter": "fake"}
        if path.endswith("/load"):
            return {"speaks": "ids"}
        if path.endswith("/open"):
            ack = History(body["prompt"]).ack()
            return {"session": "one", "round": ack.round, "position": ack.position, "digest": ack.digest}
        return turn(body["steps"])

    return answer


def acked(tokens: object, confidence: object = (), prompt: list[int] = PROMPT) -> dict[str, Any]:
    """A reply that acknowledges `prompt` as the history."""
    ack = History(prompt).ack()
    return {
        "round": ack.round,
        "position": ack.position,
        "digest": ack.digest,
        "tokens": tokens,
        "confidence": confidence,
    }


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        (acked([1, 2], prompt=[1, 2, 3]), "acknowledged"),
        ({"tokens": [1]}, "acknowledged"),
        (acked([40_000]), "outside the vocabulary of 32 ids"),
        (acked([-1]), "outside the vocabulary"),
        (acked([2**70]), "outside the vocabulary"),
        (acked([True]), "a bool as an id"),
        (acked([1.0]), "a float as an id"),
        (acked("12"), "a str as its tokens"),
        (acked(None), "a NoneType as its tokens"),
        (acked([1] * 5), "5 tokens, not at most 4"),
        (acked([1], [1.5]), "a confidence of 1.5"),
        (acked([1], [float("nan")]), "a confidence of nan"),
        (acked([1], [10**400]), "a confidence of type int"),
        (acked([1], [None]), "a confidence of type NoneType"),
        (acked([1], None), "a NoneType as its confidence"),
        (acked([1], [0.5, 0.5]), "2 confidences for 1 tokens"),
        ([1, 2], "cannot be read"),
        (b"not JSON", "cannot be read"),
        (b"[" * 100_000, "cannot be read"),
        ((200, b"{}", {"Content-Length": "100", "Connection": "close"}), "cannot be read|no answer within"),
        (b'{"tokens":"' + b"x" * (5 << 20) + b'"}', "more than 4194304 bytes"),
        ((302, {}, {"Location": "http://elsewhere/"}), "redirects to http://elsewhere/"),
        ((500, {"error": {"message": "out of memory"}}, {}), "500: out of memory"),
        ((404, {"error": "no such session"}, {}), "404: no such session"),
    ],
)
def test_a_wrong_reply_is_an_error_and_ends_the_session(reply, why):
    with json_server(protocol(lambda steps: reply)) as url:
        drafter = load(remote(url))
        session = drafter.open(fake_pin(), PROMPT)
        with pytest.raises(WorldError, match=f"(?s){url}.*({why})"):
            session.propose(4)
        for again in (lambda: session.propose(4), lambda: session.commit([1]), session.rollback):
            with pytest.raises(WorldError, match="this session ended with an error"):
                again()
        session.close()
        assert "failed once" in drafter.status()
        drafter.unload()


def hang(connection: socket.socket) -> None:
    connection.settimeout(5)
    connection.recv(1)  # until the other side has had enough


def drip(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
    for _ in range(1000):
        connection.sendall(b" ")
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("speak", "why"),
    [
        (hang, "no answer within 0.2 s"),
        (drip, "no answer within 0.2 s"),
        (lambda connection: None, "is it up|cannot be read"),
        (lambda connection: connection.sendall(b"SSH-2.0-OpenSSH_9.6\r\n"), "cannot be read"),
        (lambda connection: connection.sendall(b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 500), "cannot be read"),
        (lambda connection: connection.sendall(b"\x00" * 100_000), "cannot be read"),
    ],
    ids=["hangs", "drips", "hangs up", "speaks another protocol", "endless headers", "zeros"],
)
@pytest.mark.parametrize("dialect", ["pilotfish", "completion", "chat"])
def test_what_is_no_server_is_found_out_at_load(speak, why, dialect):
    with raw_server(speak) as url:
        drafter = remote(url, dialect=dialect, **(HURRIED if why.startswith("no answer") else {}))
        with pytest.raises(WorldError, match=f"{url}.*({why})"):
            load(drafter)
        assert drafter.status() == f"{url} ({dialect}): not connected"


def test_nobody_there_is_said_with_the_remedy():
    url = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(WorldError, match=f"{url}: nothing listens there; start it"):
        load(remote(url))


def test_another_version_of_the_protocol_is_refused():
    with json_server(lambda path, body: {"protocol": 2}) as url, pytest.raises(ProtocolViolation, match="same version"):
        load(remote(url))


def test_a_proposal_that_takes_too_long_is_given_up():
    over = threading.Event()
    slow = ScriptedDrafter(lambda history, k: [1] if over.wait(60) else [])
    with serving(slow, Endpoint(port=0)) as (url, _):
        drafter = load(remote(url, timeout_s=1))
        session = drafter.open(fake_pin(), PROMPT)
        with pytest.raises(WorldError, match=r"no answer within 1 s"):
            session.propose(4)
        over.set()
        session.close()
        drafter.unload()


def test_unloading_wakes_a_proposal_that_waits():
    def stuck(steps: list[Any]) -> Any:
        drafter.unload()
        time.sleep(0.5)
        return acked([1])

    with json_server(protocol(stuck)) as url:
        drafter = load(remote(url, timeout_s=60))
        session = drafter.open(fake_pin(), PROMPT)
        with pytest.raises(WorldError):
            session.propose(4)
        session.close()


def test_a_drafter_that_raises_over_there_ends_that_session_only():
    failing = [True]

    def script(history: object, k: int) -> list[int]:
        if failing.pop():
            raise RuntimeError("kaboom")
        return [1]

    with serving(ScriptedDrafter(script), Endpoint(port=0)) as (url, _):
        drafter = load(remote(url))
        session = drafter.open(fake_pin(), PROMPT)
        with pytest.raises(WorldError, match=r"500.*kaboom"):
            session.propose(4)
        session.close()
        failing.append(False)
        again = drafter.open(fake_pin(), PROMPT)
        assert again.propose(4).tokens == (1,)
        again.close()
        drafter.unload()


def test_a_drafter_that_lies_over_there_is_found_out():
    class Liar(ScriptedDrafter):
        def open(self, target, prompt):
            session = super().open(target, prompt)
            session.commit = lambda tokens: Ack(1, 5, "0" * 32)
            return session

    with serving(Liar(lambda history, k: [1] * k), Endpoint(port=0)) as (url, _):
        drafter = load(remote(url))
        session = drafter.open(fake_pin(), PROMPT)
        session.commit([9])
        with pytest.raises(WorldError, match="acknowledged"):
            session.propose(4)
        session.close()
        drafter.unload()


def test_a_server_that_keeps_failing_is_left_alone_for_a_while():
    clock, failing = FakeClock(), [True]

    def turn(steps: list[Any]) -> Any:
        return (500, {"error": "no"}, {}) if failing else acked([1])

    def one_session() -> None:
        session = drafter.open(fake_pin(), PROMPT)
        try:
            session.propose(4)
        finally:
            session.close()

    with json_server(protocol(turn)) as url:
        drafter = load(RemoteDrafter({"url": url, **PATIENT}, clock))
        for _ in range(3):
            with pytest.raises(WorldError, match="500"):
                one_session()
        with pytest.raises(WorldError, match=r"failed 3 times in a row, is tried again in 1 s: .*500"):
            one_session()
        assert "is tried again in 1 s" in drafter.status()
        clock.advance(1.0)
        failing.clear()
        one_session()
        assert drafter.status().endswith("answers")
        drafter.unload()


def test_rests_grow_and_one_attempt_ends_each():
    clock = FakeClock()
    breaker = Breaker(clock)
    for _ in range(3):
        assert breaker.attempt()
        breaker.failed(WorldError("no"))
    rests = []
    for _ in range(8):
        start = clock()
        while not breaker.attempt():
            clock.advance(0.5)
        assert not breaker.attempt()  # the others wait for how this one ends
        rests.append(clock() - start)
        breaker.failed(WorldError("no"))
    assert rests == [1, 2, 4, 8, 16, 32, 60, 60]
    clock.advance(60)
    assert breaker.attempt()
    breaker.succeeded()
    assert breaker.attempt()
    assert breaker.state() == ""
