"""A network on one machine: a TCP relay that hands on every byte a fixed time after it came, in both directions."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from collections import deque

log = logging.getLogger("pilotfish.lab")

CHUNK = 1 << 18  # bytes
MOST = 64 << 20  # bytes on their way in one direction; who sends more waits, as in front of a full network
CONNECTING = 10.0  # seconds


class DelayProxy:
    """Listens on a port of its own on 127.0.0.1 and relays each connection to `target`, `delay` seconds one way.

    The end of a stream travels like its bytes. Use it as a context manager, or `close` it.
    """

    def __init__(self, target: tuple[str, int], delay: float) -> None:
        self._target, self._delay = target, delay
        self._sockets: set[socket.socket] = set()
        self._lock, self._closed = threading.Lock(), False
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._accept, name="delay-proxy", daemon=True).start()

    def __enter__(self) -> DelayProxy:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Listen no more and break off what is connected; a second call does nothing."""
        with self._lock:
            self._closed, open_now = True, [self._listening, *self._sockets]
        for one in open_now:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits on it
            one.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._relay, args=(near,), name="delay-proxy", daemon=True).start()

    def _relay(self, near: socket.socket) -> None:
        """One connection, from its beginning to its end."""
        try:
            far = socket.create_connection(self._target, CONNECTING)
        except OSError as error:
            log.info("%s:%d cannot be reached: %s", *self._target, error)
            near.close()
            return
        if not self._hold(near, far):
            return
        flights = [_Flight(near, far, self._delay), _Flight(far, near, self._delay)]
        threads = [threading.Thread(target=run, daemon=True) for one in flights for run in (one.take_off, one.land)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with self._lock:
            self._sockets -= {near, far}
        near.close()
        far.close()

    def _hold(self, near: socket.socket, far: socket.socket) -> bool:
        """Whether the connection may begin: not where the proxy was closed meanwhile."""
        for one in (near, far):
            one.settimeout(None)
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self._lock:
            if not self._closed:
                self._sockets |= {near, far}
                return True
        near.close()
        far.close()
        return False


class _Flight:
    """The bytes of one direction, between when they came and when they are due."""

    def __init__(self, source: socket.socket, sink: socket.socket, delay: float) -> None:
        self._source, self._sink, self._delay = source, sink, delay
        self._due: deque[tuple[float, bytes]] = deque()  # in the order in which they came
        self._bytes, self._broken = 0, False
        self._changed = threading.Condition()

    def take_off(self) -> None:
        """Read until the stream ends, which an empty chunk stands for."""
        data = b"anything"
        while data:
            try:
                data = self._source.recv(CHUNK)
            except OSError:
                data = b""
            with self._changed:
                self._due.append((time.monotonic() + self._delay, data))
                self._bytes += len(data)
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._bytes < MOST or self._broken)
                if self._broken:
                    return

    def land(self) -> None:
        """Write what is due."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._due)
                due, data = self._due.popleft()
            time.sleep(max(0.0, due - time.monotonic()))
            if not data or not self._written(data):
                break
        with contextlib.suppress(OSError):
            self._sink.shutdown(socket.SHUT_WR)

    def _written(self, data: bytes) -> bool:
        """Whether the other side took it; where it is gone, the sender hears of it."""
        try:
            self._sink.sendall(data)
        except OSError:
            with contextlib.suppress(OSError):
                self._source.shutdown(socket.SHUT_RDWR)
        else:
            with self._changed:
                self._bytes -= len(data)
                self._changed.notify_all()
            return True
        with self._changed:
            self._broken = True
            self._changed.notify_all()
        return False
