"""How answers are written: one JSON object, lines of JSON, or server-sent events."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from aiohttp import web

from pilotfish.daemon.front.durations import FOREVER, LONGEST
from pilotfish.daemon.front.errors import status_of
from pilotfish.hooks.errors import PilotfishError

Encoder = Callable[[Mapping[str, Any]], bytes]
Objects = AsyncGenerator[Mapping[str, Any], None]


def dumps(value: Any) -> str:
    """Compact JSON: text as UTF-8, control characters and lone surrogates escaped."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text if text.isascii() or _encodable(text) else json.dumps(value, separators=(",", ":"))


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def json_response(value: Mapping[str, Any], status: int = 200) -> web.Response:
    """One object, with the Content-Type that Ollama sends."""
    return web.Response(text=dumps(value), status=status, content_type="application/json", charset="utf-8")


def ndjson(value: Mapping[str, Any]) -> bytes:
    """One line of `application/x-ndjson`."""
    return dumps(value).encode() + b"\n"


def event(value: Mapping[str, Any]) -> bytes:
    """One server-sent event."""
    return b"data: " + dumps(value).encode() + b"\n\n"


async def stream_response(
    request: web.Request,
    objects: Objects,
    content_type: str,
    encode: Encoder,
    shape_error: Callable[[int, str], Mapping[str, Any]],
    tail: bytes = b"",
) -> web.StreamResponse:
    """Write objects as they come. An error before the first is raised (and so gets its status); a later one becomes
    the last object of the stream."""
    async with contextlib.aclosing(objects) as source:
        first = await anext(source, None)
        response = web.StreamResponse(headers={"Content-Type": content_type})
        await response.prepare(request)
        try:
            if first is not None:
                await response.write(encode(first))
            async for value in source:
                await response.write(encode(value))
            if tail:
                await response.write(tail)
        except PilotfishError as error:
            await response.write(encode(shape_error(status_of(error), str(error))))
        await response.write_eof()
        return response


def timestamp(seconds: float | None = None) -> str:
    """RFC 3339 in UTC with nanoseconds, trailing zeros dropped, as Go writes times. None is now."""
    nanoseconds = time.time_ns() if seconds is None else round(_bounded(seconds) * 1e9)
    whole, fraction = divmod(nanoseconds, 10**9)
    day = datetime.fromtimestamp(whole, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    digits = f"{fraction:09}".rstrip("0")
    return f"{day}.{digits}Z" if digits else f"{day}Z"


def _bounded(seconds: float) -> float:
    return time.time() + LONGEST if seconds == FOREVER else seconds
