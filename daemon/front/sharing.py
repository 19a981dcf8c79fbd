"""Sharing the endpoints that generate with the Ollama behind this server: whose is this request?

A request is read, its model is looked up, and where that is not computed here, or the request is one that we would
refuse, the upstream gets it as it came. It is the floor here: what goes wrong before an answer has begun is its, too.
Only an MLX model with a broken tensor is an error that names it, since no engine answers rightly with such weights.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from typing import Any, NoReturn

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler, Middleware

from pilotfish.daemon.front.access import OriginRules
from pilotfish.daemon.front.durations import parse_keep_alive
from pilotfish.daemon.front.errors import RunnerGone, status_of
from pilotfish.daemon.front.keys import OWNERSHIP, RUNNERS, SETTINGS, UPSTREAM
from pilotfish.daemon.front.library import loaded_here
from pilotfish.daemon.front.relay_rules import GENERATING, LOADED, error_answer
from pilotfish.daemon.front.streams import json_response
from pilotfish.daemon.front.upstream_client import Admission, UpstreamAway
from pilotfish.daemon.http.gate import GateRefusal, foreign_origin
from pilotfish.daemon.http.json_text import parse_object
from pilotfish.daemon.http.switching import switch_of
from pilotfish.hooks.errors import ContextOverflow, PilotfishError, RequestError

log = logging.getLogger("pilotfish.front")

# aiohttp has typed keys for requests from 3.14 on.
_ADMISSION: Any = getattr(web, "RequestKey", lambda name, kind: name)("admission", Admission)
_BUSY = 503


async def relay(request: web.Request, otherwise: bytes = b"") -> NoReturn:
    """The upstream answers, or the client gets `otherwise`. Never returns: for the application, the client is gone."""
    switch = switch_of(request)
    if switch is None:
        raise asyncio.CancelledError
    switch.relay(otherwise)
    await asyncio.get_running_loop().create_future()
    raise AssertionError("nothing ends the wait but a cancellation")


def admission(own: Middleware) -> Middleware:
    """Who is let in to what is shared with the upstream, and to what is not, where `own` decides."""

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        shared = request.path in GENERATING or request.path == LOADED
        return await (_admit(request, handler) if shared else own(request, handler))

    return middleware


async def _admit(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Pages of other origins are let in as the upstream lets them in. Raises GateRefusal."""
    if origin := foreign_origin(request):
        try:
            admitted = await request.app[UPSTREAM].admission(origin, request.host)
        except UpstreamAway as error:
            log.info("our own rules hold for pages of %s: %s", origin, error)
            rules = OriginRules(request.app[SETTINGS].origins)
            admitted = Admission(rules.allows(origin), rules.headers(origin, preflight=False))
        request[_ADMISSION] = admitted
        if not admitted.allowed:
            raise GateRefusal
    return await handler(request)


async def prepare(request: web.Request, response: web.StreamResponse) -> None:
    """Signal handler for every answer of ours: the headers for other origins, and the connection's end."""
    if admitted := request.get(_ADMISSION):
        response.headers.extend(admitted.headers)
    response.force_close()
    response.headers[hdrs.CONNECTION] = "close"  # it was decided before
    if switch := switch_of(request):
        switch.answers()


@web.middleware
async def share(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answers what is for a model of ours, and hands on everything else."""
    if request.path not in GENERATING:
        return await handler(request)
    body = await _body(request)
    name = body.get("model")
    model = await request.app[OWNERSHIP].owned(name) if isinstance(name, str) else None
    if model is None:
        await relay(request)
    if _unloads(body):
        await _unload_there(request, str(name))
    try:
        return await handler(request)
    except PilotfishError as error:
        status = status_of(error)
        if isinstance(error, ContextOverflow) or status == _BUSY or not _may_relay(request):
            raise
        log.info("%s for %s is handed on to the upstream: %s", request.path, model.short, error)
        if isinstance(error, RunnerGone):
            await request.app[OWNERSHIP].failed(model)
        await relay(request, error_answer(request.path, status, str(error)))
    except (web.HTTPException, ConnectionError):
        raise
    except Exception:
        if not _may_relay(request):
            raise
        log.exception("%s for %s failed, and is handed on to the upstream", request.path, model.short)
        await relay(request)


def _may_relay(request: web.Request) -> bool:
    switch = switch_of(request)
    return switch is not None and switch.may_relay


async def handle_loaded(request: web.Request) -> web.StreamResponse:
    """GET /api/ps: what is loaded there, and here."""
    ours = await loaded_here(request.app[RUNNERS])
    if not ours:
        await relay(request)
    try:
        theirs = await request.app[UPSTREAM].loaded()
    except UpstreamAway as error:
        log.info("only what is loaded here is listed: %s", error)
        theirs = []
    return json_response({"models": [*theirs, *ours]})


async def _body(request: web.Request) -> Mapping[str, Any]:
    try:
        return parse_object(await request.read(), repair=True)
    except RequestError:
        return {}


def _unloads(body: Mapping[str, Any]) -> bool:
    if body.get("prompt") or body.get("messages"):
        return False
    with contextlib.suppress(RequestError):
        return parse_keep_alive(body.get("keep_alive")) == 0
    return False


async def _unload_there(request: web.Request, name: str) -> None:
    """The upstream may have loaded it for an endpoint that is not served here."""
    try:
        await request.app[UPSTREAM].unload(name)
    except UpstreamAway as error:
        log.debug("nothing to unload there: %s", error)
