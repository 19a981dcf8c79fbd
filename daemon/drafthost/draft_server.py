"""The draft host's server: the native draft protocol over HTTP. docs/draft-protocol.md is its definition.

The event loop only reads, writes and keeps time; the drafter works on one thread of its own. A session belongs to the
connection it was opened on and ends with it, or when nothing was asked of it for too long.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from aiohttp import web
from aiohttp.typedefs import Handler

from pilotfish import __version__
from pilotfish.daemon.drafthost.draft_protocol import (
    PROTOCOL,
    ROOT,
    ack_to_json,
    parse_opening,
    parse_steps,
    parse_wanted,
)
from pilotfish.daemon.drafthost.host_thread import HostThread
from pilotfish.daemon.drafthost.served import Occupied, Served, Unknown
from pilotfish.daemon.http.gate import GateRefusal, gate
from pilotfish.hooks.errors import PilotfishError, RequestError

log = logging.getLogger("pilotfish.hosting")

IDLE = 600.0  # seconds after which a session that is not asked anything is closed
QUEUE = 2.0  # seconds that an `open` waits for a session to end
_SWEEP = 1.0  # seconds between looks for sessions whose connection ended
_RETRY = 0.05  # seconds between tries of an `open` that waits
_MAX_BODY = 64 << 20  # bytes: a prompt of some millions of ids

T = TypeVar("T")


@dataclass(slots=True)
class _Session:
    """What the server knows of a session: whose connection it is of and when it was last asked something."""

    connection: Any  # aiohttp's protocol object, whose transport is None once the connection is lost
    used: float  # monotonic seconds
    busy: bool = False


class DraftServer:
    """Serves one drafter. `token` is the shared secret, empty where none is needed."""

    def __init__(
        self, served: Served, token: str = "", *, idle: float = IDLE, queue: float = QUEUE, sweep: float = _SWEEP
    ) -> None:
        self._served = served
        self._token = token.encode()
        self._idle, self._queue, self._sweep = idle, queue, sweep
        self._thread = HostThread(f"draft-{served.name}")
        self._sessions: dict[str, _Session] = {}

    def app(self, bound_host: str = "") -> web.Application:
        """The application, which unloads the drafter at its end. `bound_host` is where it listens, if at no path."""
        guards = [_shape_errors, gate(bound_host), self._secret]
        app = web.Application(middlewares=guards, client_max_size=_MAX_BODY)
        app.router.add_get(ROOT, self._hello)
        app.router.add_post(f"{ROOT}/load", self._load)
        app.router.add_post(f"{ROOT}/open", self._open)
        app.router.add_post(f"{ROOT}/sessions/{{session}}", self._turn)
        app.cleanup_ctx.append(self._working)
        return app

    async def _working(self, app: web.Application) -> AsyncIterator[None]:
        sweeping = asyncio.create_task(self._keep_sweeping())
        yield
        sweeping.cancel()
        await asyncio.gather(sweeping, return_exceptions=True)
        await self._thread.end(self._served.unload)

    @web.middleware
    async def _secret(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if self._token and not self._knows_the_secret(request):
            return _error(401, "unauthorized", "the shared secret is missing or wrong")
        return await handler(request)

    def _knows_the_secret(self, request: web.Request) -> bool:
        scheme, _, said = request.headers.get("Authorization", "").partition(" ")
        return hmac.compare_digest(said.encode("utf-8", "surrogateescape"), self._token) and scheme == "Bearer"

    async def _hello(self, request: web.Request) -> web.Response:
        return _answer(
            {
                "protocol": PROTOCOL,
                "pilotfish": __version__,
                "drafter": self._served.name,
                "sessions": self._served.limit,
                "open": len(self._sessions),
            }
        )

    async def _load(self, request: web.Request) -> web.Response:
        wanted = parse_wanted(await _body(request))
        await self._close_abandoned()
        speaks = await self._patiently(lambda: self._served.load(wanted))
        return _answer({"speaks": speaks})

    async def _open(self, request: web.Request) -> web.Response:
        opening = parse_opening(await _body(request))
        await self._close_abandoned()
        name, ack = await self._patiently(lambda: self._served.open(opening))
        self._sessions[name] = _Session(request.protocol, time.monotonic())
        return _answer({"session": name, **ack_to_json(ack)})

    async def _turn(self, request: web.Request) -> web.Response:
        name = request.match_info["session"]
        session = self._sessions.get(name)
        if session is None:
            raise Unknown(f"there is no session {name!r}; open one")
        steps = parse_steps(await _body(request))
        session.busy = True
        try:
            turn = await self._thread.do(lambda: self._served.turn(name, steps))
        except BaseException:
            self._sessions.pop(name, None)
            raise
        finally:
            session.busy, session.used = False, time.monotonic()
        if turn.closed:
            self._sessions.pop(name, None)
        return _answer(ack_to_json(turn.ack, turn.proposal))

    async def _patiently(self, work: Callable[[], T]) -> T:
        """Do it on the drafter's thread, again and again for a while as long as others are in the way."""
        until = time.monotonic() + self._queue
        while True:
            try:
                return await self._thread.do(work)
            except Occupied:
                if time.monotonic() >= until:
                    raise
            await asyncio.sleep(_RETRY)
            await self._close_abandoned()

    async def _keep_sweeping(self) -> None:
        while True:
            await asyncio.sleep(self._sweep)
            await self._close_abandoned()

    async def _close_abandoned(self) -> None:
        now = time.monotonic()
        for name, session in list(self._sessions.items()):
            lost = session.connection.transport is None or session.connection.transport.is_closing()
            if not session.busy and (lost or now - session.used > self._idle):
                log.info("a session is closed: %s", "its connection ended" if lost else "it was idle for too long")
                self._sessions.pop(name, None)
                await self._thread.do(partial(self._served.close, name))


@web.middleware
async def _shape_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except GateRefusal:
        return _error(403, "forbidden", "web pages, and names of other machines for this one, are not served")
    except web.HTTPException as error:
        return _error(error.status, "http", error.reason)
    except ConnectionError:  # the client is gone
        raise
    except Exception as error:
        return _failure(error)


async def _body(request: web.Request) -> Mapping[str, Any]:
    try:
        body = json.loads(await request.read())
    except (ValueError, RecursionError) as error:
        raise RequestError(f"the body is no JSON: {error}") from error
    if not isinstance(body, dict):
        raise RequestError("the body is no JSON object")
    return body


def _answer(value: Mapping[str, Any]) -> web.Response:
    return web.Response(text=json.dumps(value, separators=(",", ":")), content_type="application/json")


def _error(status: int, code: str, message: str) -> web.Response:
    text = json.dumps({"error": {"code": code, "message": message}})
    return web.Response(status=status, text=text, content_type="application/json")


def _failure(error: Exception) -> web.Response:
    """An error as an answer; what was not raised on purpose is a bug of the drafter's, and logged."""
    match error:
        case Unknown():
            return _error(404, "unknown_session", str(error))
        case Occupied():
            return _error(503, "busy", str(error))
        case RequestError():
            return _error(400, "bad_request", str(error))
        case PilotfishError():
            log.warning("%s", error)
            return _error(409, "refused", str(error))
    log.warning("the drafter failed", exc_info=error)
    return _error(500, "failed", f"{type(error).__name__}: {error}")
