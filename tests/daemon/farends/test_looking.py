"""What is found at far ends, before anything is loaded there."""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import re
import socket
import struct
import threading

import pytest

from pilotfish.daemon.farends import rpc_protocol
from pilotfish.daemon.farends.looking import look
from pilotfish.daemon.farends.rpc_protocol import DeviceSeen
from pilotfish.daemon.processes.ports import free_port
from tests.fakes.rpc_servers import GIB, HEALTH, far_end, http, own, saying, stock

SOON = 0.5  # seconds: how long one is looked at that never answers


def seen(serve, seconds=10.0, protocol="7.0.0"):
    with far_end(serve) as endpoint:
        (found,) = look([endpoint], seconds, protocol)
        return found


def test_a_stock_server_is_asked_for_its_devices():
    found = seen(stock((GIB, 2 * GIB), (3 * GIB, 4 * GIB)))
    assert found.devices == (DeviceSeen(GIB, 2 * GIB), DeviceSeen(3 * GIB, 4 * GIB))
    assert (found.trouble, found.protocol, found.pin, found.busy) == ("", "7.0.0", "RPC 7.0.0", "")


def test_our_own_tells_everything_in_its_health():
    found = seen(own())
    assert found.trouble == ""
    assert found.devices == (DeviceSeen(3 * GIB, 4 * GIB, "CPU", "A processor"),)
    assert found.pin == "libraries 1a2b3c4d5e6f, A processor, 2 threads"
    assert found.fingerprint == HEALTH["fingerprint"]


def test_one_whose_process_is_started_again_is_named():
    assert "no process that computes now" in seen(http(json.dumps(HEALTH), "503 Service Unavailable")).trouble


def test_a_device_beside_the_processor_stands_in_the_pin():
    card = {"name": "CUDA0", "description": "A card", "free": 1, "total": 2}
    assert seen(own(devices=[*HEALTH["devices"], card])).pin.endswith("2 threads, CUDA0 A card")


def test_our_own_is_asked_nothing_but_its_health():
    asked = []

    def serve(connection):
        asked.append(connection.recv(4, socket.MSG_PEEK))
        own()(connection)

    assert seen(serve).trouble == ""
    assert asked == [b"GET "]


def test_one_that_serves_somebody_else_is_named_with_whom():
    found = seen(own(busy="10.0.0.9:40000", busy_s=12.3))
    assert found.busy == "10.0.0.9:40000"
    assert "serves 10.0.0.9:40000, since 12 s" in found.trouble
    assert found.devices


def test_one_whose_process_does_not_answer_it_is_named():
    found = seen(own(silent_s=2.4))
    assert found.silent_s == 2.4
    assert "a process that does not answer, since 2 s" in found.trouble


@pytest.mark.parametrize(
    ("serve", "version", "age"),
    [
        (stock((1, 1), version=(6, 2, 1)), "6.2.1", "too old"),
        (stock((1, 1), version=(3, 6, 0), greeting=0, answer=3), "3.6.0", "too old"),
        (stock((1, 1), version=(7, 1, 0)), "7.1.0", "too new"),
        (stock((1, 1), version=(8, 0, 0), answer=60), "8.0.0", "too new"),
        (own(protocol="8.0.0"), "8.0.0", "too new"),
    ],
)
def test_another_version_is_found_before_libllama_ends_the_process_over_it(serve, version, age):
    found = seen(serve)
    assert f"is {age}: it speaks RPC {version} of llama.cpp, this machine 7.0.0" in found.trouble
    assert found.protocol == version


def test_an_older_minor_version_is_understood():
    assert seen(stock((1, 1), version=(7, 1, 0)), protocol="7.2.0").trouble == ""


def test_versions_are_not_compared_where_this_machines_is_unknown():
    assert seen(stock((1, 1), version=(9, 1, 0)), protocol="").trouble == ""


def test_a_closed_port_and_an_unknown_name_are_told_apart():
    refused, unknown = look([f"127.0.0.1:{free_port()}", "no.such.name.invalid"], 10.0)
    assert "refuses connections" in refused.trouble
    assert "no.such.name.invalid is not known here" in unknown.trouble


def test_one_that_accepts_and_is_silent_is_not_waited_for():
    ended = threading.Event()
    found = seen(lambda connection: ended.set() if not _read_on(connection) else None, SOON)
    assert "does not answer within 0.5 s" in found.trouble
    assert ended.is_set()


def test_one_that_trickles_is_not_waited_for_either():
    def serve(connection):
        connection.sendall(b"HTTP/1.1 200 OK\r\nServer: ")
        while True:
            connection.sendall(b"a")
            threading.Event().wait(0.05)

    assert "does not answer within 0.5 s" in seen(serve, SOON).trouble


def test_a_stock_server_that_serves_somebody_else_is_not_asked_in_its_own_protocol():
    """An unread greeting would end it: it answers into a connection that is gone."""
    with far_end(stock((1, 1))) as endpoint:
        host, port = endpoint.split(":")
        with socket.create_connection((host, int(port))) as first:
            first.sendall(struct.pack("<BQ", 14, 24) + bytes(24))
            assert len(first.recv(36, socket.MSG_WAITALL)) == 36
            (found,) = look([endpoint], SOON, "7.0.0")
            assert "serves somebody else" in found.trouble
        (again,) = look([endpoint], 10.0, "7.0.0")
        assert again.trouble == ""


@pytest.mark.parametrize(
    "serve",
    [
        saying(struct.pack("<Q", 1 << 62)),
        saying(struct.pack("<Q", 28) + b"\x07".ljust(28, b"\0"), struct.pack("<Q", 1 << 62)),
        saying(struct.pack("<Q", 28) + b"\x07".ljust(28, b"\0"), struct.pack("<QI", 4, 1 << 31)),
        saying(
            struct.pack("<Q", 28) + b"\x07".ljust(28, b"\0"),
            struct.pack("<QI", 4, 1),
            struct.pack("<QQQ", 16, 1, 1 << 63),
        ),
        lambda connection: connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n"),
        lambda connection: connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n" + b" " * (1 << 20)),
        http("{}"),
        http("not found", "404 Not Found"),
        http("[" * 60000),
        own(protocol=[]),
        own(protocol="seven"),
        own(threads="many"),
        own(devices=[{}]),
        http('{"pilotfish": "1", "threads": Infinity}'),
    ],
)
def test_what_is_no_far_end_is_said_to_be_none(serve):
    found = seen(serve)
    assert "is no far end: it " in found.trouble
    assert found.devices == ()


def test_one_that_ends_in_the_middle_and_one_that_never_answers():
    greeted = struct.pack("<Q", 28) + b"\x07".ljust(28, b"\0")
    assert "in the middle of an answer" in seen(saying(greeted, b"\x04")).trouble
    assert "ends every connection without an answer" in seen(lambda connection: None).trouble


def test_one_without_a_device_is_named():
    assert "offers no device" in seen(stock()).trouble
    assert "offers no device" in seen(own(devices=[])).trouble


def test_a_text_from_outside_holds_nothing_that_a_terminal_obeys():
    found = seen(own(processor="\x1b[2Ja\nb" + "x" * 1000))
    assert found.pin.isprintable()
    assert len(found.pin) < 400


def test_all_are_looked_at_at_once_and_stay_in_order():
    both = threading.Barrier(2, timeout=30)

    def serve(connection):
        if connection.recv(4, socket.MSG_PEEK) == b"GET ":
            both.wait()  # neither answers before the other was asked
        own()(connection)

    with contextlib.ExitStack() as stack:
        endpoints = [stack.enter_context(far_end(serve)) for _ in range(2)]
        found = look(endpoints, 30.0, "7.0.0")
    assert [one.endpoint for one in found] == endpoints
    assert [one.trouble for one in found] == ["", ""]


def test_one_far_end_under_two_names_is_named_once():
    with far_end(own()) as endpoint:
        one, other = look([endpoint, endpoint.replace("127.0.0.1", "localhost")], 10.0, "7.0.0")
    assert (one.trouble, one.same_as, other.same_as) == ("", "", endpoint)
    assert f'is the same far end as "{endpoint}"' in other.trouble


def test_one_far_end_behind_two_tunnels_is_named_once():
    one, another = own(instance="1f"), own(instance="2e")
    with far_end(one) as endpoint, far_end(another) as other, far_end(one) as tunnel:
        found = look([endpoint, other, tunnel], 10.0, "7.0.0")
    assert [one.same_as for one in found] == ["", "", endpoint]


def test_without_far_ends_nothing_is_looked_at():
    assert look([]) == ()


def test_the_known_version_is_that_of_the_packages_own_header():
    """Other packages bring a header of that name; ours counts only while it is the one that the package wrote."""
    package = rpc_protocol.PACKAGE
    try:
        written = importlib.metadata.files(package) or ()
    except importlib.metadata.PackageNotFoundError:
        pytest.skip(f"{package} is not installed")
    assert rpc_protocol.spoken_here() == rpc_protocol.SPOKEN_BY[importlib.metadata.version(package)]
    header = next((file for file in written if file.name == "ggml-rpc.h"), None)
    text = header.locate().read_text() if header else ""
    if not header or header.size != len(text.encode()):
        pytest.skip("the package's header is not there, or another package's lies in its place")
    parts = re.findall(r"RPC_PROTO_(?:MAJOR|MINOR|PATCH)_VERSION +(\d+)", text)
    assert ".".join(parts) == rpc_protocol.spoken_here()


def _read_on(connection):
    """Until the other side ends it."""
    while connection.recv(4096):
        pass
    return b""
