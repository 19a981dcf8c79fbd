"""What goes to the Ollama behind this server: everything, but for the requests that may be for a model of ours."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from pilotfish.daemon.front.errors import ollama_error, openai_error
from pilotfish.daemon.front.settings import FrontSettings, Upstream
from pilotfish.daemon.front.streams import dumps
from pilotfish.daemon.front.upstream_client import LOOP
from pilotfish.daemon.http.gate import is_loopback, means_this_machine
from pilotfish.daemon.http.request_head import RequestHead
from pilotfish.daemon.http.switching import Relaying

GENERATING = ("/api/generate", "/api/chat", "/v1/completions", "/v1/chat/completions")
LOADED = "/api/ps"
MAX_OWN_HEAD = 8000  # bytes: aiohttp refuses longer lines, which Ollama takes


def relaying(settings: FrontSettings, upstream: Upstream, paths: Sequence[str] = ()) -> Relaying:
    """The rules for a front that is bound as `settings` say, and serves `paths` besides. Each call has another mark.

    A path that ends with a variable stands for all that begin with what precedes it.
    """
    mark = f"1.1 pilotfish-{secrets.token_hex(8)}"
    return Relaying(
        upstream.address,
        mark,
        mine=_Mine(paths),
        refusal=_Refusal(settings.host, upstream, mark),
        failure=lambda head, why: answer_of(head, 502, f"{_upstream(upstream)} {why}; {_REMEDY}"),
    )


_REMEDY = (
    "start it (`ollama serve`, or the Ollama app), or name another address with --upstream or [front] upstream. "
    "Models that pilotfish computes itself are answered meanwhile"
)


class _Mine:
    """Whether a request is for a page of ours, or may be for a model: its body tells, so that only such are read."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._exact = frozenset(path for path in paths if "{" not in path)
        self._begins = tuple({path.partition("{")[0] for path in paths if "{" in path})

    def __call__(self, head: RequestHead) -> bool:
        # What aiohttp might read otherwise than the upstream, or refuse, is the upstream's to answer.
        if head.size > MAX_OWN_HEAD or not head.is_plain or head.values("Upgrade"):
            return False
        if head.path in self._exact or (self._begins and head.path.startswith(self._begins)):
            return True
        return (head.method, head.path) == ("GET", LOADED) or (head.method == "POST" and head.path in GENERATING)


def answer_of(head: RequestHead, status: int, message: str) -> bytes:
    """A whole HTTP answer with an error in the shape of the API that was asked."""
    return error_answer(head.path, status, message, with_body=head.method != "HEAD")


def error_answer(path: str, status: int, message: str, *, with_body: bool = True) -> bytes:
    """The same for a path."""
    error = openai_error(status, message) if path.startswith("/v1/") else ollama_error(message)
    return _http(status, error, with_body=with_body)


class _Refusal:
    """What is answered before anybody is asked."""

    def __init__(self, host: str, upstream: Upstream, mark: str) -> None:
        self._loopback = is_loopback(host)
        self._upstream = upstream
        self._token = mark.rpartition(" ")[2]

    def __call__(self, head: RequestHead) -> bytes:
        if any(self._token in value for value in head.values("Via")):
            what = f"{_upstream(self._upstream)} hands requests back to this server"
            return answer_of(head, LOOP, f"{what}; name an Ollama as the upstream, whose port is 11434 by default")
        if self._loopback and not all(map(means_this_machine, head.hosts)):
            return b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        return b""


def _upstream(upstream: Upstream) -> str:
    return f"the upstream {upstream.address.url}"


def _http(status: int, error: Mapping[str, Any], *, with_body: bool) -> bytes:
    body = dumps(error).encode()
    lines = (
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}",
        "Content-Type: application/json; charset=utf-8",
        f"Content-Length: {len(body)}",
        "Connection: close",
        "",
        "",
    )
    return "\r\n".join(lines).encode() + (body if with_body else b"")
