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
====================================  ====================================================================

docs/page.md describes the JSON. Over TCP a request has to come from this machine or bring the token, and never from
another web page; over the control socket, which only its owner can open, everything is allowed.
"""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler

from pilotfish.daemon.config.editing import set_enabled
from pilotfish.daemon.core.live import Sight
from pilotfish.daemon.dashboard.dashboard import Dashboard, sight_of
from pilotfish.daemon.dashboard.page_files import page, static_files
from pilotfish.daemon.dashboard.page_token import COOKIE, HEADER
from pilotfish.daemon.dashboard.viewers import Message
from pilotfish.daemon.http.gate import GateRefusal, gate, is_loopback
from pilotfish.daemon.http.json_text import parse_object
from pilotfish.hooks.errors import PilotfishError, RequestError

log = logging.getLogger("pilotfish.dashboard")

PREFIX = "/pilotfish"
MAX_BODY = 1 << 20  # bytes
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

DASHBOARD = web.AppKey("dashboard", Dashboard)
BY_SOCKET = web.AppKey("by_socket", bool)


def add_page(app: web.Application, dashboard: Dashboard, *, by_socket: bool = False) -> None:
    """Serve the page and its API below `PREFIX`; `by_socket`: whoever can connect may do everything."""
    # A name that means this machine is asked for wherever the server listens: the page is not for the network.
    guards = [_errors] if by_socket else [gate("127.0.0.1"), _errors, _near]
    below = web.Application(middlewares=guards, client_max_size=MAX_BODY)
    below[DASHBOARD], below[BY_SOCKET] = dashboard, by_socket
    below.on_response_prepare.append(_add_headers)
    below.on_shutdown.append(_end_streams)
    below.add_routes(
        [
            web.get("/", page),
            web.get("/open", _open),
            *static_files(),
            web.get("/api/state", _state),
            web.get("/api/events", _events),
            web.get("/api/history", _history),
            web.get("/api/certificates", _certificates),
            web.get("/api/live", _live),
            web.post("/api/switch", _switch),
        ]
    )
    if by_socket:
        below.add_routes([web.post("/open", _new_code)])
    app.add_routes([web.get(PREFIX, _to_page)])
    app.add_subapp(PREFIX, below)


def may_change(request: web.Request) -> bool:
    """Whether this client may change things and read answers."""
    if request.app[BY_SOCKET]:
        return True
    token = request.app[DASHBOARD].token
    return token.matches(request.headers.get(HEADER)) or token.matches(request.cookies.get(COOKIE))


def check_token(request: web.Request) -> None:
    """Raises HTTPForbidden."""
    if not may_change(request):
        raise web.HTTPForbidden(reason=f"changes need the token: run `pilotfish open`, or send {HEADER}")


async def _to_page(request: web.Request) -> web.Response:
    raise web.HTTPPermanentRedirect(f"{PREFIX}/")


async def _open(request: web.Request) -> web.Response:
    token = request.app[DASHBOARD].token
    if not token.redeem(request.query.get("code", "")):
        text = "This link was used already, or is older than a minute. Run `pilotfish open` again."
        return web.Response(status=403, text=text)
    response = web.Response(status=303, headers={hdrs.LOCATION: f"{PREFIX}/"})
    response.set_cookie(COOKIE, token.value, max_age=COOKIE_SECONDS, path=PREFIX, httponly=True, samesite="Strict")
    return response


async def _new_code(request: web.Request) -> web.Response:
    dashboard = request.app[DASHBOARD]
    url = dashboard.state.url
    return _json({"url": url and f"{url}open?code={dashboard.token.code()}"})


async def _state(request: web.Request) -> web.Response:
    dashboard = request.app[DASHBOARD]
    await dashboard.shelf.look()
    return _json({**dashboard.state.json(), "may_change": may_change(request)})


async def _events(request: web.Request) -> web.Response:
    dashboard = request.app[DASHBOARD]
    await dashboard.shelf.look()
    return _json({"events": dashboard.events()})


async def _history(request: web.Request) -> web.Response:
    account = request.app[DASHBOARD].account
    return _json({"days": account.days(), "hours": account.hours()})


async def _certificates(request: web.Request) -> web.Response:
    return _json({"certificates": await request.app[DASHBOARD].shelf.certificates()})


async def _switch(request: web.Request) -> web.Response:
    check_token(request)
    body = parse_object(await request.read())
    enabled, model = body.get("enabled"), body.get("model")
    if not isinstance(enabled, bool) or not (model is None or isinstance(model, str)):
        raise RequestError('send {"enabled": true or false, "model": a name, or null for all}')
    edit = await asyncio.to_thread(set_enabled, enabled, model)
    return _json({"changed": edit.changed, "key": edit.key, "path": str(edit.path), "exceptions": edit.exceptions})


async def _live(request: web.Request) -> web.StreamResponse:
    dashboard, allowed = request.app[DASHBOARD], may_change(request)
    sight = sight_of(request.query.get("sight", Sight.TEXT), may_see_text=allowed)
    viewer = dashboard.viewers.enter(sight, may_change=allowed)
    try:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "X-Accel-Buffering": "no"})
        await response.prepare(request)
        await dashboard.shelf.look()
        viewer.tell(Message("state", dashboard.state.json()))
        while not viewer.closed:
            waiting = viewer.take()
            await response.write(b"".join(_event(message, allowed) for message in waiting) or b":\n\n")
            with_patience = asyncio.wait_for(viewer.arrived.wait(), PING)
            try:
                await with_patience
            except TimeoutError:
                continue
        return response
    finally:
        dashboard.viewers.leave(viewer)


def _event(message: Message, allowed: bool) -> bytes:
    data = {**message.data, "may_change": allowed} if message.event == "state" else message.data
    return f"event: {message.event}\ndata: ".encode() + _dump(data) + b"\n\n"


async def _end_streams(app: web.Application) -> None:
    app[DASHBOARD].viewers.close()


@web.middleware
async def _near(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Only this machine's own programs, and of its web pages only the page itself; others need the token."""
    if not is_loopback(request.remote or "") and not may_change(request) and not request.path.endswith("/open"):
        raise web.HTTPForbidden(reason="the page is for this machine; run `pilotfish open` there, or send the token")
    from_elsewhere = request.headers.get("Sec-Fetch-Site") in ("cross-site", "same-site")
    if from_elsewhere and request.headers.get("Sec-Fetch-Mode") != "navigate":
        raise GateRefusal
    return await handler(request)


@web.middleware
async def _errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Every error as `{"error": text}`."""
    try:
        return await handler(request)
    except (GateRefusal, web.HTTPRedirection, ConnectionError):
        raise
    except web.HTTPException as error:
        return _json({"error": error.reason}, error.status)
    except PilotfishError as error:
        return _json({"error": str(error)}, 400)
    except Exception as error:
        log.exception("%s failed", request.path)
        return _json({"error": f"{type(error).__name__}: {error}"}, 500)


async def _add_headers(request: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(_HEADERS)
    response.headers.setdefault(hdrs.CACHE_CONTROL, "no-store")


def _json(value: Any, status: int = 200) -> web.Response:
    return web.Response(body=_dump(value), status=status, content_type="application/json")


def _dump(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), default=str).encode()
