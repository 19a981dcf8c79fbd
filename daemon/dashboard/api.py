"""The page's HTTP: files, a JSON API and a stream of events, below `/pilotfish`.

====================================  ====================================================================
`GET /pilotfish/`                      the page
`GET /pilotfish/open?code=...`         trades the code of `pilotfish open` for a cookie
`GET /pilotfish/api/state`             how things stand
`GET /pilotfish/api/events`            the last thousand things that happened
`GET /pilotfish/api/history`           the account by day and by hour
`GET /pilotfish/api/certificates`      certificates with their rows
`GET /pilotfish/api/live`              server-sent events: state, happened, live, explained, lost
`POST /pilotfish/api/switch`           speculation on or off, for a model or for all; needs the token
`POST /pilotfish/api/playground`       one prompt answered twice, as NDJSON; needs the token
====================================  ====================================================================

docs/page.md describes the JSON. Over TCP a request has to come from this machine or bring the token, and never from
another web page; over the control socket, which only its owner can open, everything is allowed.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import hdrs, web

from pilotfish.daemon.config.editing import set_enabled
from pilotfish.daemon.core.live import Sight
from pilotfish.daemon.dashboard.dashboard import Dashboard, sight_of
from pilotfish.daemon.dashboard.page_files import page, static_files
from pilotfish.daemon.dashboard.page_token import COOKIE, HEADER
from pilotfish.daemon.dashboard.playground import PlaygroundTrial, compare
from pilotfish.daemon.dashboard.viewers import PageMessage
from pilotfish.daemon.http.gate import GateRefusal, gate, is_loopback
from pilotfish.daemon.http.json_text import parse_object
from pilotfish.daemon.http.peer_owner import owner_of
from pilotfish.hooks.errors import PilotfishError, RequestError

log = logging.getLogger("pilotfish.dashboard")

PREFIX = "/pilotfish"
PING = 15.0  # seconds without a message after which a stream shows that it is alive
COOKIE_SECONDS = 30 * 24 * 3600
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def page_routes(dashboard: Dashboard, *, by_socket: bool = False) -> list[web.RouteDef]:
    """The page and its API, for any application; `by_socket`: whoever can connect may do everything."""
    api = PageApi(dashboard, by_socket=by_socket)
    routes = {
        "/": page,
        "/open": api.open,
        **static_files(),
        "/api/state": api.state,
        "/api/events": api.events,
        "/api/history": api.history,
        "/api/certificates": api.certificates,
        "/api/live": api.live,
    }
    posts = {"/api/switch": api.switch, "/api/playground": api.playground}
    if by_socket:
        posts["/open"] = api.new_code
    return [
        web.get(PREFIX, api.guarded(_to_page), allow_head=False),
        *(web.get(PREFIX + path, api.guarded(handler), allow_head=False) for path, handler in routes.items()),
        *(web.post(PREFIX + path, api.guarded(handler)) for path, handler in posts.items()),
    ]


class PageApi:
    """The handlers of one application."""

    def __init__(self, dashboard: Dashboard, *, by_socket: bool) -> None:
        self._dashboard = dashboard
        self._by_socket = by_socket
        # A name that means this machine is asked for wherever the server listens: the page is not for the network.
        self._gate = gate("127.0.0.1")

    def guarded(self, handler: _Handler) -> _Handler:
        """`handler` for whom it is for, with the page's headers, and every error as `{"error": text}`."""

        async def guarded(request: web.Request) -> web.StreamResponse:
            try:
                response = await (handler(request) if self._by_socket else self._gate(request, near))
            except (GateRefusal, web.HTTPRedirection, ConnectionError):
                raise
            except web.HTTPException as error:
                response = _json({"error": error.reason}, error.status)
            except PilotfishError as error:
                response = _json({"error": str(error)}, 400)
            except Exception as error:
                log.exception("%s failed", request.path)
                response = _json({"error": f"{type(error).__name__}: {error}"}, 500)
            if not response.prepared:
                _add_headers(response)
            return response

        async def near(request: web.Request) -> web.StreamResponse:
            self._check_nearness(request)
            return await handler(request)

        return guarded

    def _check_nearness(self, request: web.Request) -> None:
        """Only this machine's own programs, and of its web pages only the page itself; others need the token."""
        here = is_loopback(request.remote or "") or request.path == f"{PREFIX}/open"
        if not here and not self._may_change(request):
            raise web.HTTPForbidden(reason=f"the page is for this machine; from elsewhere, send {HEADER}")
        from_elsewhere = request.headers.get("Sec-Fetch-Site") in ("cross-site", "same-site")
        if from_elsewhere and request.headers.get("Sec-Fetch-Mode") != "navigate":
            raise GateRefusal

    def _may_change(self, request: web.Request) -> bool:
        """Whether this client may change things and read answers."""
        token = self._dashboard.token
        given = request.headers.get(HEADER) or request.cookies.get(COOKIE)
        return self._by_socket or token.matches(given)

    def _check_token(self, request: web.Request) -> None:
        if not self._may_change(request):
            raise web.HTTPForbidden(reason=f"changes need the token: run `pilotfish open`, or send {HEADER}")

    async def open(self, request: web.Request) -> web.Response:
        """Trade a code for the cookie."""
        token = self._dashboard.token
        asker = await asyncio.to_thread(owner_of, *_ends(request))
        if not token.redeem(request.query.get("code", ""), asker):
            text = (
                "This link was used already, is older than a minute, or is another user's. Run `pilotfish open` again."
            )
            return web.Response(status=403, text=text)
        response = web.Response(status=303, headers={hdrs.LOCATION: f"{PREFIX}/"})
        response.set_cookie(COOKIE, token.value, max_age=COOKIE_SECONDS, path=PREFIX, httponly=True, samesite="Strict")
        return response

    async def new_code(self, request: web.Request) -> web.Response:
        """`pilotfish open` asks for this: where the page is, with a code, which may be for one user alone."""
        url, user = self._dashboard.state.url, parse_object(await request.read() or b"{}").get("user")
        if not (user is None or isinstance(user, int)):
            raise RequestError("user: expected a user's number, or null")
        return _json({"url": url and f"{url}open?code={self._dashboard.token.code(user)}"})

    async def state(self, request: web.Request) -> web.Response:
        """How things stand."""
        await self._dashboard.shelf.glance()
        return _json({**self._dashboard.state.json(), "may_change": self._may_change(request)})

    async def events(self, request: web.Request) -> web.Response:
        """What happened."""
        await self._dashboard.shelf.glance()
        return _json({"events": self._dashboard.events()})

    async def history(self, request: web.Request) -> web.Response:
        """The account over time."""
        account = self._dashboard.account
        return _json({"days": account.days(), "hours": account.hours()})

    async def certificates(self, request: web.Request) -> web.Response:
        """What was measured here."""
        return _json({"certificates": await self._dashboard.shelf.certificates()})

    async def switch(self, request: web.Request) -> web.Response:
        """Speculation on or off."""
        self._check_token(request)
        body = parse_object(await request.read())
        enabled, model = body.get("enabled"), body.get("model")
        if not isinstance(enabled, bool) or not (model is None or isinstance(model, str)):
            raise RequestError('send {"enabled": true or false, "model": a name, or null for all}')
        edit = await asyncio.to_thread(set_enabled, enabled, model)
        return _json({"changed": edit.changed, "key": edit.key, "path": str(edit.path), "exceptions": edit.exceptions})

    async def playground(self, request: web.Request) -> web.StreamResponse:
        """Both answers, piece by piece; an error after the first is a line `{"error": text}`."""
        self._check_token(request)
        runners = {runner.id: runner for runner in self._dashboard.governor.runners}
        trial = PlaygroundTrial.from_json(parse_object(await request.read()), runners)
        response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson", "X-Accel-Buffering": "no"})
        _add_headers(response)
        await response.prepare(request)
        async with contextlib.aclosing(compare(trial)) as pieces:
            try:
                async for piece in pieces:
                    await response.write(_dump(piece) + b"\n")
            except PilotfishError as error:
                await response.write(_dump({"error": str(error)}) + b"\n")
        return response

    async def live(self, request: web.Request) -> web.StreamResponse:
        """Server-sent events until the client goes."""
        dashboard, allowed = self._dashboard, self._may_change(request)
        sight = sight_of(request.query.get("sight", Sight.TEXT), may_see_text=allowed)
        viewer = dashboard.viewers.enter(sight)
        try:
            response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "X-Accel-Buffering": "no"})
            _add_headers(response)
            await response.prepare(request)
            viewer.tell(PageMessage("state", dashboard.state.json()))
            while not viewer.closed:
                await response.write(b"".join(_event(message, allowed) for message in viewer.take()) or b":\n\n")
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(viewer.arrived.wait(), PING)
            return response
        finally:
            dashboard.viewers.leave(viewer)


async def _to_page(request: web.Request) -> web.Response:
    raise web.HTTPPermanentRedirect(f"{PREFIX}/")


def _ends(request: web.Request) -> tuple[Any, Any]:
    """The connection's: theirs and ours."""
    transport = request.transport
    return (transport.get_extra_info("peername"), transport.get_extra_info("sockname")) if transport else (None, None)


def _event(message: PageMessage, allowed: bool) -> bytes:
    data = {**message.data, "may_change": allowed} if message.event == "state" else message.data
    return f"event: {message.event}\ndata: ".encode() + _dump(data) + b"\n\n"


def _add_headers(response: web.StreamResponse) -> None:
    response.headers.update(_HEADERS)
    response.headers.setdefault(hdrs.CACHE_CONTROL, "no-store")


def _json(value: Any, status: int = 200) -> web.Response:
    return web.Response(body=_dump(value), status=status, content_type="application/json")


def _dump(value: Any) -> bytes:
    try:
        text = _ENCODER.encode(value)
    except ValueError:  # a file has NaN or an infinity, which no browser reads: null
        text = _ENCODER.encode(json.loads(json.dumps(value, default=str), parse_constant=lambda name: None))
    return text.encode()


_ENCODER = json.JSONEncoder(separators=(",", ":"), default=str, allow_nan=False)
