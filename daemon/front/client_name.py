"""The front asks runners on behalf of a client, and says for whom: the account is by program."""

from __future__ import annotations

from contextvars import ContextVar
from types import SimpleNamespace

import aiohttp
from aiohttp import web
from aiohttp.typedefs import Handler

from pilotfish.daemon.http.client_program import HEADER, client_program

_client: ContextVar[str] = ContextVar("client", default="")


@web.middleware
async def note_client(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Remember the program while its request is answered."""
    _client.set(client_program(request.headers))
    return await handler(request)


def naming_client() -> aiohttp.TraceConfig:
    """Has every request of a session say for whom it is made."""
    tracing = aiohttp.TraceConfig()
    tracing.on_request_start.append(_name)
    return tracing


async def _name(
    session: aiohttp.ClientSession, context: SimpleNamespace, params: aiohttp.TraceRequestStartParams
) -> None:
    if client := _client.get():
        params.headers[HEADER] = client
