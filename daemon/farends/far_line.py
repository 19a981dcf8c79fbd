"""A TCP connection with a deadline: whoever is at the other side, no more is waited for and read than was asked for."""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from types import TracebackType

_CHUNK = 4096
_RESET = struct.pack("ii", 1, 0)  # close with a reset, and not with an end


class FarLine:
    """A connection to `address`, IPv4 and port. `deadline` is of `time.monotonic`.

    What does not arrive before it raises TimeoutError, what the other side ends ConnectionError. With `asks_rpc` a
    connection that is left too late is reset. An rpc-server that takes it up afterwards, reads what was asked and
    answers into a connection that ended in order is ended by SIGPIPE; of a reset one it gets an error, and goes on.
    """

    def __init__(self, address: tuple[str, int], deadline: float, *, asks_rpc: bool = False) -> None:
        self._deadline, self._asks_rpc = deadline, asks_rpc
        self._socket = socket.create_connection(address, self._left())
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> FarLine:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._asks_rpc and isinstance(error, TimeoutError):
            with contextlib.suppress(OSError):
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self._socket.close()

    def send(self, data: bytes) -> None:
        """All of it."""
        self._socket.settimeout(self._left())
        self._socket.sendall(data)

    def receive(self, size: int) -> bytes:
        """Exactly `size` bytes."""
        got = bytearray()
        while len(got) < size:
            if not (more := self.receive_some(size - len(got))):
                raise ConnectionError("the connection was closed")
            got += more
        return bytes(got)

    def receive_some(self, most: int) -> bytes:
        """What is there, at most `most` bytes; empty when the other side closed in order."""
        self._socket.settimeout(self._left())
        return self._socket.recv(min(most, _CHUNK))

    def _left(self) -> float:
        if (left := self._deadline - time.monotonic()) <= 0:
            raise TimeoutError("the time is over")
        return left
