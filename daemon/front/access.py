"""Who may talk to the front: browser origins (CORS) and host names, decided as Ollama decides.

A request without an Origin is not a browser's cross-site request and passes. A known origin gets its headers, an
unknown one 403. A server bound to loopback answers only to names that mean this machine or its network, so that a web
page cannot reach it through a DNS name of its own (DNS rebinding).
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Sequence

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler, Middleware
from multidict import CIMultiDict

_METHODS = "GET,POST,PUT,PATCH,DELETE,HEAD,OPTIONS"
_HEADERS = (
    "Authorization,Content-Type,User-Agent,Accept,X-Requested-With,Openai-Beta,X-Stainless-Arch,X-Stainless-Async,"
    "X-Stainless-Custom-Poll-Interval,X-Stainless-Helper-Method,X-Stainless-Lang,X-Stainless-Os,"
    "X-Stainless-Package-Version,X-Stainless-Poll-Helper,X-Stainless-Retry-Count,X-Stainless-Runtime,"
    "X-Stainless-Runtime-Version,X-Stainless-Timeout"
)
_MAX_AGE = "43200"  # seconds a browser may remember a preflight answer
_LOCAL_DOMAINS = (".localhost", ".local", ".internal")


class OriginRules:
    """Which Origin headers are answered. A pattern may hold one `*`; the pattern `*` alone allows everything."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self.allow_all = "*" in patterns
        self._exact = {pattern.lower() for pattern in patterns}
        self._wild = [pattern.partition("*")[::2] for pattern in patterns if "*" in pattern]

    def allows(self, origin: str) -> bool:
        """Whether a page from `origin` may read answers."""
        if self.allow_all or origin in self._exact:
            return True
        return any(origin.startswith(start) and origin.endswith(end) for start, end in self._wild)

    def headers(self, origin: str, *, preflight: bool) -> CIMultiDict[str]:
        """The CORS headers of an answer to an allowed origin."""
        headers = CIMultiDict({"Access-Control-Allow-Origin": "*" if self.allow_all else origin})
        if preflight:
            headers["Access-Control-Allow-Methods"] = _METHODS
            headers["Access-Control-Allow-Headers"] = _HEADERS
            headers["Access-Control-Max-Age"] = _MAX_AGE
        if not self.allow_all:
            headers.add("Vary", "Origin")
            for name in ("Access-Control-Request-Method", "Access-Control-Request-Headers") if preflight else ():
                headers.add("Vary", name)
        return headers


class Access:
    """The gate in front of every route, known or not."""

    def __init__(self, origins: Sequence[str], bound_host: str) -> None:
        self._rules = OriginRules(origins)
        self._loopback = _is_loopback(bound_host)

    def middleware(self) -> Middleware:
        """Lets a request through, or answers it."""

        @web.middleware
        async def gate(request: web.Request, handler: Handler) -> web.StreamResponse:
            origin = _foreign_origin(request)
            if origin and not self._rules.allows(origin):
                return web.Response(status=403)
            if origin and request.method == hdrs.METH_OPTIONS:
                return web.Response(status=204)
            return await self._known_hosts(request, handler)

        return gate

    async def add_headers(self, request: web.Request, response: web.StreamResponse) -> None:
        """Signal handler for every response, because a stream's headers are gone before a middleware sees it."""
        origin = _foreign_origin(request)
        if origin and self._rules.allows(origin):
            response.headers.extend(self._rules.headers(origin, preflight=request.method == hdrs.METH_OPTIONS))

    async def _known_hosts(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if not self._loopback or _is_near(host := _host_name(request.host)):
            return await handler(request)
        if not _is_local_name(host):
            return web.Response(status=403)
        if request.method == hdrs.METH_OPTIONS:
            return web.Response(status=204)
        return await handler(request)


def _foreign_origin(request: web.Request) -> str:
    """The Origin of a cross-site request; empty for any other."""
    origin = request.headers.get(hdrs.ORIGIN, "")
    return "" if origin in (f"http://{request.host}", f"https://{request.host}") else origin


def _host_name(host: str) -> str:
    name, separator, port = host.rpartition(":")
    bare = name if separator and port.isdecimal() else host
    return bare.strip("[]").lower()


def _is_near(host: str) -> bool:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or address.is_private or address.is_unspecified


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _is_local_name(host: str) -> bool:
    return host in ("", "localhost", socket.gethostname().lower()) or host.endswith(_LOCAL_DOMAINS)
