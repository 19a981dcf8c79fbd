"""The native draft protocol as the host speaks it: a transcript of what went in and what came out."""

from __future__ import annotations

from typing import Any

import pytest

from pilotfish.daemon.drafthost.listening import Endpoint
from pilotfish.daemon.http.connection import Limits
from pilotfish.hooks.history import History
from pilotfish.hooks.types import Ack, Placement, TargetPin
from pilotfish.lab.fakes import ScriptedDrafter
from tests.daemon.drafthost.clients import ANYWHERE, TARGET, WANTED, Client, repeating
from tests.fakes.far import serving
from tests.fakes.misbehaviour import JUNK, RAISED
from tests.fakes.peers import connect, crowd
from tests.waiting import wait_until


def acked(ack: Ack) -> dict[str, Any]:
    return {"round": ack.round, "position": ack.position, "digest": ack.digest}


def test_a_session_from_its_start_to_its_end(host):
    client, drafter = host
    history = History([5, 6, 7])
    status, hello = client.ask("GET", "")
    assert (status, hello["protocol"], hello["drafter"], hello["open"]) == (200, 1, "scripted", 0)
    assert client.ask("POST", "/load", WANTED) == (200, {"speaks": "ids"})
    status, opened = client.open()
    session = opened.pop("session")
    assert (status, opened) == (200, acked(history.ack()))
    proposed = {**acked(history.ack()), "tokens": [7, 7], "confidence": [0.5, 0.5]}
    assert client.turn(session, ["propose", 2]) == (200, proposed)
    assert client.turn(session, ["commit", [7, 9]]) == (200, acked(history.commit([7, 9])))
    history.commit([1])
    history.commit([2, 3])
    proposed = {**acked(history.ack()), "tokens": [3], "confidence": [0.5]}
    assert client.turn(session, ["commit", [1]], ["commit", [2, 3]], ["propose", 1]) == (200, proposed)
    assert client.turn(session, ["rollback"]) == (200, acked(history.ack()))
    assert client.turn(session, ["close"]) == (200, acked(history.ack()))
    assert client.turn(session, ["propose", 1])[0] == 404
    assert drafter.sessions[0].closed == 1


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"protocol": 2}, "protocol"),
        ({"target": 5}, "target"),
        ({"target": {**TARGET, "weights": 1}}, "target.weights"),
        ({"target": {**TARGET, "tokenizer": {"n_vocab": -1}}}, "target.tokenizer.n_vocab"),
        ({"target": {**TARGET, "name": 7}}, "target.name"),
        ({"n_ctx": 0}, "n_ctx"),
        ({"n_ctx": True}, "n_ctx"),
        ({"speaks": "words"}, "speaks"),
        ({"prompt": [32]}, "prompt"),
        ({"prompt": [-1]}, "prompt"),
        ({"prompt": ["5"]}, "prompt"),
        ({"prompt": None}, "prompt"),
    ],
)
def test_a_wrong_opening_is_refused_by_field(host, change, named):
    status, answer = host[0].open(**change)
    assert (status, answer["error"]["code"]) == (400, "bad_request")
    assert answer["error"]["message"].startswith(named)
    assert host[1].sessions == []


@pytest.mark.parametrize(
    "steps",
    [
        [],
        ["propose"],
        [["propose", -1]],
        [["propose", 1 << 20]],
        [["commit", 5]],
        [["commit", [1 << 40]]],
        [["draft", 1]],
    ],
)
def test_a_wrong_step_is_refused_and_the_session_lives(host, steps):
    client, _ = host
    session = client.open()[1]["session"]
    assert client.ask("POST", f"/sessions/{session}", {"steps": steps})[0] == 400
    assert client.turn(session, ["propose", 1])[0] == 200


@pytest.mark.parametrize("body", [b"", b"nonsense", b"[1]", b"[" * 50_000])
def test_what_is_no_object_is_refused(host, body):
    assert host[0].ask("POST", "/open", body)[0] == 400


def test_unknown_paths_and_methods_are_errors_in_json(host):
    assert host[0].ask("GET", "/nothing")[0] == 404
    assert host[0].ask("DELETE", "/open")[0] == 405


def test_web_pages_are_not_served(host):
    client, _ = host
    client.headers = {"Origin": "http://evil.example"}
    assert client.ask("GET", "")[0] == 403


def test_the_secret_is_needed_for_everything():
    with serving(repeating(), Endpoint(port=0, token="sixteen-letters!!")) as (url, _):
        for headers, status in (
            ({}, 401),
            ({"Authorization": "Bearer wrong"}, 401),
            ({"Authorization": "Basic sixteen-letters!!"}, 401),
            ({"Authorization": "Bearer sixteen-letters!!"}, 200),
        ):
            client = Client(url, **headers)
            assert client.ask("GET", "")[0] == status
            assert client.open()[0] == status
            client.http.close()


def test_a_drafter_that_raises_ends_its_session(host):
    client, drafter = host
    drafter.fail = lambda what: 1 / 0 if what == "propose" else None
    session = client.open()[1]["session"]
    status, answer = client.turn(session, ["propose", 1])
    assert (status, answer["error"]["code"]) == (500, "failed")
    assert drafter.sessions[0].closed == 1
    assert client.turn(session, ["rollback"])[0] == 404


def test_a_drafter_that_lies_about_its_prompt_opens_no_session(host):
    client, drafter = host
    drafter.fail = lambda what: drafter.sessions[-1].history.commit([1]) if what == "rollback" else None
    assert client.open()[0] == 409
    assert drafter.sessions[0].closed == 1


def test_a_second_session_waits_a_little_and_is_refused():
    with serving(repeating(), ANYWHERE, queue=0.1) as (url, _):
        first, second = Client(url), Client(url)
        session = first.open()[1]["session"]
        status, answer = second.open()
        assert (status, answer["error"]["code"]) == (503, "busy")
        first.turn(session, ["close"])
        assert second.open()[0] == 200
        first.http.close()
        second.http.close()


def test_a_session_that_ends_makes_room_for_one_that_waits():
    with serving(repeating(), ANYWHERE, queue=30) as (url, _):
        first, second = Client(url), Client(url)
        first.open()
        first.http.close()  # without a word
        assert second.open()[0] == 200
        second.http.close()


def test_several_sessions_if_the_drafter_can():
    with serving(SeveralDrafter(), ANYWHERE, queue=0.05) as (url, _):
        clients = [Client(url) for _ in range(3)]
        assert [client.open(prompt=[i])[0] for i, client in enumerate(clients)] == [200, 200, 503]
        for client in clients:
            client.http.close()


def test_a_session_whose_connection_ended_is_closed(host):
    client, drafter = host
    client.open()
    client.http.close()
    wait_until(lambda: drafter.sessions[0].closed == 1)


def test_an_idle_session_is_closed():
    drafter = repeating()
    with serving(drafter, ANYWHERE, sweep=0.02, idle=0.1) as (url, _):
        client = Client(url)
        session = client.open()[1]["session"]
        wait_until(lambda: drafter.sessions[0].closed == 1)
        assert client.turn(session, ["propose", 1])[0] == 404
        client.http.close()


class SeveralDrafter:
    """Can have two sessions at a time."""

    name, placement, sessions = "several", Placement.INLINE, 2

    def open(self, target: TargetPin, prompt: Any) -> Any:
        return ScriptedDrafter().open(target, prompt)


@pytest.mark.parametrize("error", RAISED)
@pytest.mark.parametrize("what", ["open", "propose", "commit", "rollback"])
def test_whatever_a_drafter_raises_is_an_answer_and_the_host_serves_the_next(host, what, error):
    client, drafter = host

    def fail(at):
        if at == what:
            raise error

    drafter.fail = fail
    status, answer = client.open()
    if status == 200:
        status, answer = client.turn(answer["session"], ["commit", [1]], ["propose", 1])
    assert status in (409, 500)
    assert type(error).__name__ in answer["error"]["message"]
    drafter.fail = lambda at: None
    status, opened = client.open()
    assert status == 200
    assert client.turn(opened["session"], ["propose", 1])[0] == 200


@pytest.mark.parametrize("error", RAISED)
def test_whatever_closing_raises_the_session_is_closed(host, error):
    client, drafter = host

    def fail(at):
        if at == "close":
            raise error

    drafter.fail = fail
    session = client.open()[1]["session"]
    assert client.turn(session, ["close"])[0] == 200
    assert client.open()[0] == 200  # the only one that there is room for


@pytest.mark.parametrize("junk", JUNK)
def test_what_is_no_sound_proposal_never_leaves_the_host(host, junk):
    client, drafter = host
    status, opened = client.open()
    drafter.sessions[0].propose = lambda k: junk
    status, answer = client.turn(opened["session"], ["propose", 4])
    assert (status, answer["error"]["code"]) == (409, "refused")
    assert drafter.sessions[0].closed == 1
    assert client.open()[0] == 200


def test_ids_beyond_the_targets_vocabulary_are_cut_off(host):
    client, drafter = host
    session = client.open()[1]["session"]
    drafter.script = lambda history, k: [12, 40000]
    assert client.turn(session, ["propose", 4])[1]["tokens"] == [12]


@pytest.mark.parametrize(("name", "status"), [("localhost", 200), ("127.0.0.1:1", 200), ("evil.example", 403)])
def test_a_name_of_another_machine_is_not_answered(host, name, status):
    client, _ = host
    client.headers = {"Host": name}
    assert client.ask("GET", "")[0] == status


def test_half_heads_are_not_in_the_way():
    with serving(repeating(), ANYWHERE, limits=Limits(connections=16)) as (url, _):
        client = Client(url)
        with crowd(int(url.rpartition(":")[2]), 100):
            assert client.open()[0] == 200
        client.http.close()


def test_a_body_that_stops_coming_is_no_failure_of_the_drafter(caplog):
    with serving(repeating(), ANYWHERE, limits=Limits(stall=0.1)) as (url, _):
        with connect(int(url.rpartition(":")[2])) as peer:
            peer.sendall(b"POST /v1/draft/open HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
            assert peer.recv(100) == b""
        client = Client(url)
        assert client.open()[0] == 200
        client.http.close()
    assert "the drafter failed" not in caplog.text
