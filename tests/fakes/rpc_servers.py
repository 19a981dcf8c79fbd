"""Far ends in a thread that compute nothing: a stock rpc-server, pilotfish's own, and what else may listen there."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from typing import Any

GIB = 1 << 30
Serve = Callable[[socket.socket], None]

HEALTH: dict[str, Any] = {
    "pilotfish": "0.1",
    "protocol": "7.0.0",
    "fingerprint": "1a2b3c4d5e6f" + "0" * 52,
    "engine": "llama",
    "processor": "A processor",
    "devices": [{"name": "CPU", "description": "A processor", "free": 3 * GIB, "total": 4 * GIB}],
    "threads": 2,
    "memory": 4 * GIB,
    "cache": "",
    "busy": "",
    "busy_s": 0.0,
    "sessions": 0,
    "restarts": 0,
}


@contextlib.contextmanager
def far_end(serve: Serve) -> Iterator[str]:
    """Connections at a port of 127.0.0.1, one after the other, as `serve` treats them; yields "host:port"."""
    listener = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=_accept, args=(listener, serve))
    thread.start()
    try:
        yield "{}:{}".format(*listener.getsockname())
    finally:
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(10)


def _accept(listener: socket.socket, serve: Serve) -> None:
    with contextlib.suppress(OSError):
        while True:
            connection, _ = listener.accept()
            with connection, contextlib.suppress(OSError):
                connection.settimeout(10)
                serve(connection)


def stock(
    *memory: tuple[int, int], version: tuple[int, int, int] = (7, 0, 0), greeting: int = 24, answer: int = 28
) -> Serve:
    """As rpc-server: ends what does not begin with a greeting of its time, and then answers what looking asks."""

    def serve(connection: socket.socket) -> None:
        if connection.recv(1, socket.MSG_PEEK) != b"\x0e" or _request(connection)[1] != bytes(greeting):
            return
        _answer(connection, bytes(version).ljust(answer, b"\0"))
        while True:
            command, payload = _request(connection)
            if command == 15:
                _answer(connection, struct.pack("<I", len(memory)))
            else:
                _answer(connection, struct.pack("<QQ", *memory[struct.unpack("<I", payload)[0]]))

    return serve


def own(**said: Any) -> Serve:
    """As pilotfish's own far end while its seat is taken: health for everybody, and no RPC for anybody else."""
    return http(json.dumps({**HEALTH, **said}))


def http(body: str, status: str = "200 OK") -> Serve:
    def serve(connection: socket.socket) -> None:
        if connection.recv(4, socket.MSG_PEEK) == b"GET ":
            connection.recv(4096)
            head = (
                f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body.encode())}\r\n\r\n"
            )
            connection.sendall((head + body).encode())

    return serve


def saying(*answers: bytes) -> Serve:
    """A stock rpc-server in its manners, whose first answers are these bytes instead."""

    def serve(connection: socket.socket) -> None:
        if connection.recv(1, socket.MSG_PEEK) == b"\x0e":
            for answer in answers:
                _request(connection)
                connection.sendall(answer)

    return serve


def _request(connection: socket.socket) -> tuple[int, bytes]:
    command, size = struct.unpack("<BQ", _exactly(connection, 9))
    return command, _exactly(connection, size)


def _answer(connection: socket.socket, payload: bytes) -> None:
    connection.sendall(struct.pack("<Q", len(payload)) + payload)


def _exactly(connection: socket.socket, size: int) -> bytes:
    got = b""
    while len(got) < size:
        if not (more := connection.recv(size - len(got))):
            raise ConnectionError
        got += more
    return got
