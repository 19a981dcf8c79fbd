"""Handing a request to the stock server beside the runner, and its answer back, byte for byte.

Only what belongs to one connection (RFC 9110, 7.6.1) is not passed on. When either side goes, the other one learns of
it: a client that leaves ends the generation, and an answer that breaks off upstream breaks off for the client too.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

import aiohttp
from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

from pilotfish.daemon.processes.child_server import ChildServer
from pilotfish.daemon.runner.sidecar import Sidecar
from pilotfish.hooks.errors import EngineError

log = logging.getLogger("pilotfish.sidecar")

_HOP_BY_HOP = frozenset(
    {"connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade", "expect"}
)
_OF_THE_BODY = frozenset({"content-length", "content-encoding"})  # of a request: it was decoded on arrival
_ADDED_BY_AIOHTTP = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")


async def relay(http: web.Request, sidecar: Sidecar) -> web.StreamResponse:
    """The stock server's answer to `http`. Raises EngineError while nothing of the answer has been sent."""
    body = await http.read()
    try:
        return await _relay(http, body, sidecar)
    except _Unreachable:  # it ended since it was last heard of, and has got nothing of the request
        return await _relay(http, body, sidecar)


class _Unreachable(EngineError):
    """Nobody listens at the server's address."""


async def _relay(http: web.Request, body: bytes, sidecar: Sidecar) -> web.StreamResponse:
    async with sidecar.running() as process:
        answer = await _ask(http, body, sidecar.session, process)
        try:
            return await _pass_back(http, answer, process)
        finally:
            answer.close()


async def _ask(
    http: web.Request, body: bytes, session: aiohttp.ClientSession, process: ChildServer
) -> aiohttp.ClientResponse:
    try:
        return await session.request(
            http.method,
            URL(process.url + http.raw_path, encoded=True),
            headers=_headers(http.raw_headers, _HOP_BY_HOP | _OF_THE_BODY),
            skip_auto_headers=_ADDED_BY_AIOHTTP,
            data=body,
            allow_redirects=False,
        )
    except aiohttp.ClientConnectorError as error:
        raise _Unreachable(await _broken(process, error)) from error
    except aiohttp.ClientError as error:
        raise EngineError(await _broken(process, error)) from error


async def _pass_back(http: web.Request, answer: aiohttp.ClientResponse, process: ChildServer) -> web.StreamResponse:
    headers = _headers(answer.raw_headers, _HOP_BY_HOP)
    response = web.StreamResponse(status=answer.status, reason=answer.reason, headers=headers)
    try:
        await response.prepare(http)
        while data := await _next(answer, process):
            await response.write(data)
        await response.write_eof()
    except ConnectionError:
        log.debug("the client left in mid-answer")
    except EngineError as error:
        log.warning("%s: %s", http.path, error)
        if http.transport is not None:
            http.transport.abort()
    return response


async def _next(answer: aiohttp.ClientResponse, process: ChildServer) -> bytes:
    """What has arrived; nothing at the end."""
    try:
        return await answer.content.readany()
    except aiohttp.ClientError as error:
        raise EngineError(await _broken(process, error)) from error


async def _broken(process: ChildServer, error: Exception) -> str:
    await process.end_noticed()
    return f"the stock llama-server beside this runner broke off ({error}); its last words:\n{process.said}"


def _headers(raw: Iterable[tuple[bytes, bytes]], without: frozenset[str]) -> CIMultiDict[str]:
    """The headers without those in `without` and those that `Connection` names."""
    found = CIMultiDict((name.decode("latin-1"), value.decode("utf-8", "surrogateescape")) for name, value in raw)
    named = {word.strip().lower() for value in found.getall("Connection", ()) for word in value.split(",")}
    return CIMultiDict((name, value) for name, value in found.items() if name.lower() not in without | named)
