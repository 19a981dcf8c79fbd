"""Who may talk to a server of ours: browser origins and host names, decided as Ollama decides.

A request without an Origin is not a browser's cross-site request and passes. One from an origin that is not allowed
gets 403. A server bound to loopback answers only to names that mean this machine or its network, so that a web page
cannot reach it through a DNS name of its own (DNS rebinding).
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler, Middleware

_LOCAL_DOMAINS = (".localhost", ".local", ".internal")


class GateRefusal(web.HTTPForbidden):
    """A 403 without a body and its type, which is Ollama's, where no other middleware gives it another shape."""

    empty_body = True


def gate(bound_host: str, allows: Callable[[str], bool] = lambda origin: False) -> Middleware:
    """A middleware for every route, known or not, that lets a request through or raises GateRefusal.

    `bound_host` is where the server listens, empty where browsers cannot reach it, as at a path; `allows` says which
    origins may, for whom preflight requests are answered.
    """
    loopback = is_loopback(bound_host)

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        origin = foreign_origin(request)
        host = _host_name(request.host)
        if origin and not allows(origin):
            raise GateRefusal
        if origin and request.method == hdrs.METH_OPTIONS:
            return web.Response(status=204)
        if not loopback or _is_near(host):
            return await handler(request)
        if not _is_local_name(host):
            raise GateRefusal
        if request.method == hdrs.METH_OPTIONS:
            return web.Response(status=204)
        return await handler(request)

    return middleware


def means_this_machine(host: str) -> bool:
    """Whether a `Host` header names this machine or its network, so that a server bound to loopback may answer."""
    name = _host_name(host)
    return _is_near(name) or _is_local_name(name)


def foreign_origin(request: web.Request) -> str:
    """The Origin of a cross-site request; empty for any other."""
    origin = request.headers.get(hdrs.ORIGIN, "")
    return "" if origin in (f"http://{request.host}", f"https://{request.host}") else origin


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach what listens at `host`."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


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


def _is_local_name(host: str) -> bool:
    return host in ("", "localhost", socket.gethostname().lower()) or host.endswith(_LOCAL_DOMAINS)
