"""The page's own files: one template, plain JavaScript modules, styles, and uPlot as its authors built it."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Awaitable, Callable
from pathlib import Path

import jinja2
from aiohttp import hdrs, web

from pilotfish import __version__

HERE = Path(__file__).parent
STATIC = HERE / "static"
_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


def static_files() -> dict[str, Callable[[web.Request], Awaitable[web.Response]]]:
    """A handler for each file, by its path: what is not listed here cannot be asked for."""
    return {
        f"/static/{path.relative_to(STATIC).as_posix()}": functools.partial(_file, path)
        for path in sorted(STATIC.rglob("*"))
        if path.suffix in _TYPES
    }


async def page(request: web.Request) -> web.Response:
    """`GET /pilotfish/`"""
    return web.Response(text=_rendered(), content_type="text/html", charset="utf-8")


async def _file(path: Path, request: web.Request) -> web.Response:
    body, tag = _read(path)
    headers = {hdrs.ETAG: f'"{tag}"', hdrs.CACHE_CONTROL: "no-cache"}
    if request.headers.get(hdrs.IF_NONE_MATCH) == headers[hdrs.ETAG]:
        return web.Response(status=304, headers=headers)
    return web.Response(body=body, content_type=_TYPES[path.suffix], charset="utf-8", headers=headers)


@functools.cache
def _read(path: Path) -> tuple[bytes, str]:
    body = path.read_bytes()
    return body, hashlib.sha256(body).hexdigest()[:16]


@functools.cache
def _rendered() -> str:
    folder = jinja2.FileSystemLoader(HERE / "templates")
    environment = jinja2.Environment(loader=folder, autoescape=True, undefined=jinja2.StrictUndefined)
    return environment.get_template("page.html.jinja").render(version=__version__)
