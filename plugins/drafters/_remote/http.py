"""JSON over HTTP with deadlines that hold, for one thread at a time.

Every request has one deadline for all of it: connecting, sending, waiting and reading. A server that sends a byte now
and then gains nothing by it. Redirects are not followed, proxies are not asked, and no reply is read beyond a limit.
Whatever goes wrong is a WorldError that names the address and what to do.
"""

from __future__ import annotations

import contextlib
import http.client
import io
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pilotfish.hooks.errors import ConfigError, ProtocolViolation, WorldError
from pilotfish.plugins.drafters._remote.address import Address

MAX_REPLY = 4 << 20  # bytes; a proposal is hundreds, a vocabulary's text at most some thousands
_SHOWN = 300  # characters of a reply that are quoted in a message


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer: its status and its JSON object."""

    status: int
    body: Mapping[str, Any]


class ErrorStatus(WorldError):
    """The server answered with an error. `status` is HTTP's."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class ServerAccess:
    """How the server is reached: where, with which secret and certificates. Times are seconds."""

    address: Address
    token: str = ""
    cafile: str = ""
    connect_timeout: float = 2.0

    def tls(self) -> ssl.SSLContext | None:
        """The checks a certificate has to pass; None without TLS. Raises ConfigError."""
        if not self.address.tls:
            return None
        try:
            return ssl.create_default_context(cafile=self.cafile or None)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(f"drafters.remote.cafile: {self.cafile} cannot be used: {error}") from error


class Connections:
    """Keep-alive connections to one server. `close` may come from any thread and ends what is under way."""

    def __init__(self, access: ServerAccess) -> None:
        self.access = access
        self._tls = access.tls()
        self._idle: list[ServerConnection] = []
        self._live: set[ServerConnection] = set()
        self._lock = threading.Lock()
        self._closed = False

    def take(self, *, fresh: bool = False) -> ServerConnection:
        """A connection for one user, an idle one unless `fresh`."""
        with self._lock:
            if self._closed:
                raise WorldError(f"{self.access.address.url}: was unloaded")
            if self._idle and not fresh:
                return self._idle.pop()
            connection = ServerConnection(self.access, self._tls)
            self._live.add(connection)
            return connection

    def give(self, connection: ServerConnection) -> None:
        """Back to the idle ones; a broken one is forgotten."""
        with self._lock:
            if connection.reusable and not self._closed:
                self._idle.append(connection)
                return
            self._live.discard(connection)
        connection.close()

    def ask(self, method: str, path: str, body: object = None, *, within: float) -> Reply:
        """One request on a connection of the pool; see `ServerConnection.ask`."""
        connection = self.take()
        try:
            return connection.ask(method, path, body, within=within, again=True)
        finally:
            self.give(connection)

    def close(self) -> None:
        """End every connection; a request that waits on one fails at once."""
        with self._lock:
            self._closed, live = True, list(self._live)
            self._live.clear()
            self._idle.clear()
        for connection in live:
            connection.abort()


class ServerConnection:
    """One connection, opened with the first request on it."""

    def __init__(self, access: ServerAccess, tls: ssl.SSLContext | None) -> None:
        self._access = access
        self._http = _Http(access, tls)
        self._used = False

    @property
    def reusable(self) -> bool:
        """Whether the next request may travel on it."""
        return self._http.sock is not None

    def ask(self, method: str, path: str, body: object = None, *, within: float, again: bool = False) -> Reply:
        """The server's JSON object, which must be there `within` seconds. Raises ErrorStatus for any status but 200.

        With `again` a request that a kept connection could no longer deliver is sent once more on a new one.
        """
        until = time.monotonic() + within
        kept = self._used and self.reusable
        self._used = True
        try:
            try:
                return self._exchange(method, path, body, until)
            except (http.client.RemoteDisconnected, ConnectionError):
                if not (again and kept):
                    raise
                self.close()
                return self._exchange(method, path, body, until)
        except (OSError, http.client.HTTPException, ValueError, RecursionError) as error:
            self.close()
            raise self._explained(error, within) from error
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Hang up; the next request connects anew."""
        self._http.close()

    def abort(self) -> None:
        """Wake whoever waits on this connection, from another thread."""
        self._http.abort()

    def _exchange(self, method: str, path: str, body: object, until: float) -> Reply:
        self._http.until = until
        headers = {"Accept": "application/json"}
        if self._access.token:
            headers["Authorization"] = f"Bearer {self._access.token}"
        data = None
        if body is not None:
            data = json.dumps(body, separators=(",", ":")).encode()
            headers["Content-Type"] = "application/json"
        self._http.request(method, self._access.address.base + path, data, headers)
        response = self._http.getresponse()
        text = response.read(MAX_REPLY + 1)
        if len(text) > MAX_REPLY:
            raise ProtocolViolation(f"{self._where}: sent more than {MAX_REPLY} bytes; is it the right server?")
        if response.length:  # what was announced and never came
            raise http.client.IncompleteRead(text, response.length)
        return self._reply(response, text)

    def _reply(self, response: http.client.HTTPResponse, text: bytes) -> Reply:
        if 300 <= response.status < 400:
            to = response.getheader("Location", "elsewhere")
            raise ErrorStatus(f"{self._where}: redirects to {to}; name that address, or find out why", response.status)
        if response.status != 200:
            raise ErrorStatus(f"{self._where}: {_refusal(response.status, text)}", response.status)
        body = json.loads(text)
        if not isinstance(body, dict):
            raise ValueError("no JSON object")
        return Reply(response.status, body)

    @property
    def _where(self) -> str:
        return self._access.address.url

    def _explained(self, error: Exception, within: float) -> WorldError:
        url = self._where
        if isinstance(error, ssl.SSLError):
            return WorldError(f"{url}: no trusted TLS connection ({error}); name its certificate as cafile")
        if isinstance(error, TimeoutError):
            return WorldError(f"{url}: no answer within {within:g} s; is it up, and the network fast enough?")
        if isinstance(error, http.client.RemoteDisconnected):
            return WorldError(f"{url}: hung up without an answer; is it up, and the right server?")
        if isinstance(error, ConnectionRefusedError | FileNotFoundError):
            return WorldError(f"{url}: nothing listens there; start it, or correct the url")
        if isinstance(error, http.client.HTTPException | ValueError | RecursionError):
            kind = type(error).__name__
            return ProtocolViolation(f"{url}: its answer cannot be read ({kind}: {error}); is it the right server?")
        return WorldError(f"{url}: {error or type(error).__name__}; is it up, and the url right?")


class _Http(http.client.HTTPConnection):
    """`http.client`'s connection over TCP, TLS or a Unix socket, with the deadline `until` (monotonic seconds)."""

    def __init__(self, access: ServerAccess, tls: ssl.SSLContext | None) -> None:
        super().__init__(access.address.host, access.address.port)
        self.until = 0.0
        self._access = access
        self._tls = tls
        self._raw: socket.socket | None = None
        self._aborted = False

    def connect(self) -> None:
        if self._aborted:
            raise ConnectionAbortedError("the drafter was unloaded")
        address = self._access.address
        limit = min(self._access.connect_timeout, self.remaining())
        if address.socket:
            raw = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            raw.settimeout(limit)
            _or_close(raw, lambda: raw.connect(address.socket))
        else:
            raw = socket.create_connection((address.host, address.port), limit)
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if tls := self._tls:
                plain = raw
                raw = _or_close(plain, lambda: tls.wrap_socket(plain, server_hostname=address.host))
        self._raw = raw
        self.sock = _Timed(raw, self)

    def close(self) -> None:
        self._raw = None
        super().close()

    def abort(self) -> None:
        self._aborted = True
        if (raw := self._raw) is not None:
            with contextlib.suppress(OSError):
                raw.shutdown(socket.SHUT_RDWR)

    def remaining(self) -> float:
        """Seconds until the deadline. Raises TimeoutError when it has passed."""
        left = self.until - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        return left


class _Timed:
    """What `http.client` needs of a socket, where every wait ends at the connection's deadline.

    `http.client` sends a request's head and body apart. They leave here together, when the reply is asked for: as
    two packets they met Nagle's algorithm and delayed acknowledgements on the way, at 40 ms a round.
    """

    def __init__(self, raw: socket.socket, connection: _Http) -> None:
        self._raw = raw
        self._connection = connection
        self._unsent: list[bytes] = []

    def sendall(self, data: bytes) -> None:
        self._unsent.append(data)

    def makefile(self, mode: str) -> io.BufferedReader:
        data, self._unsent = b"".join(self._unsent), []
        self._raw.settimeout(self._connection.remaining())  # of the whole `sendall`
        self._raw.sendall(data)
        return io.BufferedReader(_TimedReader(self._raw, self._connection))

    def close(self) -> None:
        self._raw.close()


class _TimedReader(io.RawIOBase):
    def __init__(self, raw: socket.socket, connection: _Http) -> None:
        self._raw = raw
        self._file = raw.makefile("rb", buffering=0)  # keeps the socket open until the reply was read
        self._connection = connection

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._raw.settimeout(self._connection.remaining())
        return self._file.readinto(buffer)

    def close(self) -> None:
        self._file.close()
        super().close()


def _or_close(raw: socket.socket, step: Callable[[], Any]) -> Any:
    try:
        return step()
    except BaseException:
        raw.close()
        raise


def _refusal(status: int, text: bytes) -> str:
    """What an error reply says, in any of the shapes that servers use."""
    try:
        body = json.loads(text)
        error = body.get("error", body.get("message", body)) if isinstance(body, dict) else body
        said = str(error.get("message", error) if isinstance(error, dict) else error)
    except (ValueError, RecursionError):
        said = text.decode("utf-8", "replace")
    hint = "; check token_file on both sides" if status in (401, 403) else ""
    return f"answered {status}: {said[:_SHOWN].strip() or 'nothing'}{hint}"
