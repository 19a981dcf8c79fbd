"""Far ends that compute: a near end without pilotfish, whose model is split over two of them."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.far_ends import RunningFarEnd, far_end, greedy_ids, near_end
from tests.waiting import wait_until

pytestmark = [pytest.mark.rpc, pytest.mark.model]

PROMPT = "The capital of France is"
KEYS = [
    "pilotfish", "instance", "protocol", "fingerprint", "engine", "processor", "devices", "threads", "memory", "cache",
    "busy", "busy_s", "silent_s", "sessions", "restarts",
]  # fmt: skip


@pytest.fixture(scope="module")
def ends(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunningFarEnd, RunningFarEnd]]:
    first, second = tmp_path_factory.mktemp("first"), tmp_path_factory.mktemp("second")
    with far_end(first) as one, far_end(second, "--cache", str(second / "weights"), memory=512) as two:
        yield one, two


def hello(endpoint: str) -> socket.socket:
    """A near end's connection, and its first message sent."""
    host, port = endpoint.split(":")
    found = socket.create_connection((host, int(port)), timeout=60)
    found.sendall(struct.pack("<BQ24x", 14, 24))
    return found


def answered(connection: socket.socket) -> bool:
    """Whether an answer comes, and not the end of the connection."""
    try:
        return bool(connection.recv(1))
    except ConnectionError:
        return False


def kill_and_wait(end: RunningFarEnd) -> None:
    before = end.health()["restarts"]
    end.kill_child()
    wait_until(lambda: end.health()["restarts"] == before + 1, "it did not come back")
    end.wait_until_free()


def test_a_split_gives_the_ids_of_one_far_end_and_gives_them_again_when_processes_were_killed(ends, smollm2_path):
    one, _ = ends
    expected = greedy_ids(smollm2_path, [one], PROMPT, 12)
    assert greedy_ids(smollm2_path, ends, PROMPT, 12) == expected
    for end in ends:
        kill_and_wait(end)
    assert greedy_ids(smollm2_path, ends, PROMPT, 12) == expected
    for end in ends:
        end.wait_until_free()


def test_it_says_what_it_has_and_whom_it_serves(ends):
    one, two = ends
    health = two.health()
    assert list(health) == KEYS
    assert (health["protocol"], health["threads"], health["cache"], health["busy"]) == ("7.0.0", 1, True, "")
    assert health["memory"] == 512 << 20
    assert [device["name"] for device in health["devices"]] == ["CPU"]
    assert (health["devices"][0]["free"], health["devices"][0]["total"]) == (512 << 20, 512 << 20)
    assert one.health()["memory"] is None
    assert one.health()["devices"][0]["total"] > 512 << 20
    assert one.health()["fingerprint"] == health["fingerprint"] == two.said["fingerprint"]
    with hello(two.endpoint) as connection:
        assert answered(connection)
        busy = two.health()
        assert busy["busy"] == f"127.0.0.1:{connection.getsockname()[1]}"
        assert busy["sessions"] == health["sessions"] + 1
    two.wait_until_free()


def test_a_second_near_end_is_turned_away_and_the_first_one_stays(ends):
    one, _ = ends
    with hello(one.endpoint) as first, hello(one.endpoint) as second:
        assert answered(first)
        assert not answered(second)
        first.sendall(struct.pack("<BQ", 15, 0))  # how many devices there are
        assert answered(first)
        assert f"127.0.0.1:{second.getsockname()[1]} was turned away: 127.0.0.1:" in one.log.read_text()
    one.wait_until_free()


def test_what_is_no_near_end_is_cut_off(ends):
    one, _ = ends
    host, port = one.endpoint.split(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall(b"\x16\x03\x01 TLS")
        assert not answered(connection)
    assert "neither RPC nor HTTP" in one.log.read_text()


def test_the_connection_of_a_process_that_was_killed_is_closed(ends):
    one, _ = ends
    with hello(one.endpoint) as connection:
        assert answered(connection)
        connection.recv(100)  # what is left of the answer
        kill_and_wait(one)
        assert not answered(connection)


def test_a_model_that_exceeds_the_limit_is_refused_and_the_next_one_is_served(tmp_path, smollm2_path):
    with far_end(tmp_path, memory=48) as small:
        before = small.child.pid
        refused = near_end(smollm2_path, [small], PROMPT, 1)
        assert refused.returncode == 3, refused.stderr[-2000:]
        small.wait_until_free()
        assert small.health()["devices"][0]["free"] == 48 << 20
        with hello(small.endpoint) as connection:
            assert answered(connection)
            connection.recv(100)
            connection.sendall(struct.pack("<BQ", 6, 64 << 30))  # a tensor of 64 GiB
            assert not answered(connection)
        small.wait_until_free()
        assert (small.child.pid, small.health()["restarts"]) == (before, 0)


def test_weights_are_kept_where_they_may_be(ends, smollm2_path):
    _, two = ends
    two.wait_until_free()
    greedy_ids(smollm2_path, [two], PROMPT, 1)
    folder = Path(two.log).parent / "weights"
    assert folder.stat().st_mode & 0o777 == 0o700
    kept = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert kept
    two.wait_until_free()
    greedy_ids(smollm2_path, [two], PROMPT, 1)
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == kept
    two.wait_until_free()
