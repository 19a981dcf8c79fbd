"""Far ends of this process: which of them are there, and what is said when the library ends it."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from types import SimpleNamespace

import psutil
import pytest

from pilotfish.hooks.errors import EngineError
from pilotfish.hooks.types import FarEnd
from pilotfish.plugins._llama import far_ends as subject
from pilotfish.plugins._llama.devices import ggml_functions
from pilotfish.plugins._llama.far_ends import FarEnds
from tests.waiting import wait_until


class Reached:
    """What libggml-rpc does, as far as connections go: one to each far end, whose device is this machine's."""

    def __init__(self, folder: object) -> None:
        self.connections: dict[str, socket.socket] = {}

    def add_server(self, endpoint: str) -> int:
        host, port = endpoint.split(":")
        self.connections[endpoint] = socket.create_connection((host, int(port)))
        return 1

    def devices_of(self, entry: int) -> list[int]:
        return [ggml_functions().ggml_backend_dev_get(0)]


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """One far end with a name, and this process as its near end."""
    reached = Reached(None)
    monkeypatch.setattr(subject, "RpcLibrary", lambda folder: reached)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        endpoint = f"localhost:{listener.getsockname()[1]}"
        far = FarEnds([FarEnd(endpoint)], (), 60.0)
        with listener.accept()[0] as over_there:
            yield SimpleNamespace(far=far, endpoint=endpoint, over_there=over_there, said=[], reached=reached)
    far.close()
    for connection in reached.connections.values():
        connection.close()


def fail(*arguments: object) -> None:
    """A name server that does not answer."""
    raise socket.gaierror("no answer")


def test_it_is_there_as_long_as_its_connection_is_whatever_becomes_of_its_name(place, monkeypatch):
    monkeypatch.setattr(subject.socket, "getaddrinfo", fail)
    assert list(place.reached.connections) == [place.endpoint.replace("localhost", "127.0.0.1")]
    assert place.far.gone() == ()
    place.over_there.close()
    wait_until(lambda: place.far.gone() == (place.endpoint,))


def test_where_the_system_tells_no_connections_none_is_gone(place, monkeypatch):
    def denied() -> None:
        raise psutil.AccessDenied

    monkeypatch.setattr(subject, "_connections", denied)
    assert place.far.gone() == ()


def test_a_name_that_is_unknown_is_an_error(monkeypatch):
    monkeypatch.setattr(subject, "RpcLibrary", Reached)
    monkeypatch.setattr(subject.socket, "getaddrinfo", fail)
    with pytest.raises(EngineError, match=r"box\.invalid:50052 is not known here"):
        FarEnds([FarEnd("box.invalid:50052")], (), 60.0)


@pytest.mark.parametrize(
    ("aborted", "told"),
    [
        (
            "./src/ggml-rpc/ggml-rpc.cpp:569: Remote RPC server crashed",
            "the far end {} was lost (Remote RPC server crashed)",
        ),
        ("/src/ggml-cpu/ops.cpp:12: GGML_ASSERT(a: b) failed", "the engine's library ended the process (GGML_ASSERT"),
    ],
)
def test_only_what_breaks_on_the_way_to_far_ends_is_said_to_be_their_loss(place, aborted, told):
    place.far.when_lost(place.said.append)
    place.far._aborts(aborted.encode())
    (why,) = place.said
    assert why.startswith(told.format(place.endpoint))


def test_a_call_that_does_not_come_back_is_noticed(place, monkeypatch):
    monkeypatch.setattr(place.far, "_deadline", 0.01)
    monkeypatch.setattr(place.far, "_lost", place.said.append)
    place.far.watching(lambda: wait_until(lambda: place.said))()
    assert "was lost (it was silent for" in place.said[0]
