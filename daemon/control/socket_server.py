"""The control socket's HTTP: JSON in, JSON out, and a stream of plans for each runner.

=====================================  ===================================================================
`POST /v1/runners`                     a runner registers; the answer is NDJSON, one plan per line, the first
                                       at once. The registration lives exactly as long as the connection.
`POST /v1/runners/{id}/report`         how that runner is doing
`POST /v1/runners/{id}/live`           what happens in its requests, while somebody looks
`GET /v1/status`                       everything the daemon knows
`GET /metrics`                         what its runners did, for Prometheus
=====================================  ===================================================================
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from pilotfish.daemon.control.daemon_metrics import DaemonMetrics, metrics_routes
from pilotfish.daemon.control.governor import ConnectedRunner, Governor
from pilotfish.daemon.control.plans import Registration, Report
from pilotfish.daemon.http.json_text import parse_object
from pilotfish.hooks.errors import PilotfishError, RequestError

log = logging.getLogger("pilotfish.daemon")

MAX_BODY = 1 << 20  # bytes

GOVERNOR = web.AppKey("governor", Governor)
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def create_app(governor: Governor) -> web.Application:
    """The application; serve it with `handler_cancellation=True`, so that a runner that dies is noticed at once."""
    app = web.Application(middlewares=[_errors], client_max_size=MAX_BODY)
    app[GOVERNOR] = governor
    app.add_routes(
        [
            web.post("/v1/runners", _runners),
            web.post("/v1/runners/{id}/report", _report),
            web.post("/v1/runners/{id}/live", _live),
            web.get("/v1/status", _status),
            *metrics_routes(DaemonMetrics(governor).scrape),
        ]
    )
    return app


async def _runners(request: web.Request) -> web.StreamResponse:
    governor = request.app[GOVERNOR]
    registration = Registration.from_json(await _body(request))
    runner = governor.register(registration)
    try:
        return await _stream_plans(request, governor, runner)
    finally:
        governor.leave(runner)


async def _stream_plans(request: web.Request, governor: Governor, runner: ConnectedRunner) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
    await response.prepare(request)
    while True:
        runner.changed.clear()
        plan = governor.plan(*runner.registration.names)
        if plan != runner.sent:
            runner.sent = plan
            await response.write(_line({"runner": runner.id, **plan.to_json()}))
        if runner.registration.live and runner.told is not governor.sight:
            runner.told = governor.sight
            await response.write(_line({"runner": runner.id, "watch": runner.told}))
        await runner.changed.wait()


async def _report(request: web.Request) -> web.Response:
    request.app[GOVERNOR].report(request.match_info["id"], Report.from_json(await _body(request)))
    return _json({})


async def _live(request: web.Request) -> web.Response:
    body = await _body(request)
    events = body.get("events")
    if not isinstance(events, list) or not all(isinstance(event, dict) for event in events):
        raise RequestError("not a list of events; is the runner of this version?")
    request.app[GOVERNOR].live(request.match_info["id"], events)
    return _json({})


async def _status(request: web.Request) -> web.Response:
    return _json(request.app[GOVERNOR].status())


async def _body(request: web.Request) -> dict[str, Any]:
    return parse_object(await request.read())


def _json(value: Any, status: int = 200) -> web.Response:
    return web.Response(body=_line(value), status=status, content_type="application/json")


def _line(value: Any) -> bytes:
    # TOML has dates, JSON has not: in a drafter's own table they arrive as text.
    return json.dumps(value, default=str).encode() + b"\n"


@web.middleware
async def _errors(request: web.Request, handler: _Handler) -> web.StreamResponse:
    """Every error as `{"error": text}`."""
    try:
        return await handler(request)
    except web.HTTPException as error:
        return _json({"error": error.reason}, error.status)
    except PilotfishError as error:
        return _json({"error": str(error)}, 400)
    except ConnectionError:  # the client is gone
        raise
    except Exception as error:
        log.exception("%s failed", request.path)
        return _json({"error": f"{type(error).__name__}: {error}"}, 500)
