"""Who may talk to the front: the gate of every server here, and the CORS headers that an allowed origin gets."""

from __future__ import annotations

from collections.abc import Sequence

from aiohttp import hdrs, web
from aiohttp.typedefs import Middleware
from multidict import CIMultiDict

from pilotfish.daemon.http.gate import foreign_origin, gate

_METHODS = "GET,POST,PUT,PATCH,DELETE,HEAD,OPTIONS"
_HEADERS = (
    "Authorization,Content-Type,User-Agent,Accept,X-Requested-With,Openai-Beta,X-Stainless-Arch,X-Stainless-Async,"
    "X-Stainless-Custom-Poll-Interval,X-Stainless-Helper-Method,X-Stainless-Lang,X-Stainless-Os,"
    "X-Stainless-Package-Version,X-Stainless-Poll-Helper,X-Stainless-Retry-Count,X-Stainless-Runtime,"
    "X-Stainless-Runtime-Version,X-Stainless-Timeout"
)
_MAX_AGE = "43200"  # seconds a browser may remember a preflight answer


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
        self._bound_host = bound_host

    def middleware(self) -> Middleware:
        """Lets a request through, or answers it. Raises GateRefusal."""
        return gate(self._bound_host, self._rules.allows)

    async def add_headers(self, request: web.Request, response: web.StreamResponse) -> None:
        """Signal handler for every response, because a stream's headers are gone before a middleware sees it."""
        origin = foreign_origin(request)
        if origin and self._rules.allows(origin):
            response.headers.extend(self._rules.headers(origin, preflight=request.method == hdrs.METH_OPTIONS))
