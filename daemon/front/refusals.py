"""Routes of Ollama that this front does not serve: each answers with an error that says what to use instead."""

from __future__ import annotations

from aiohttp import web
from aiohttp.typedefs import Handler

from pilotfish.daemon.front.errors import StatusError

_STORE = "pilotfish only reads the model store"

# method, path, what to do instead
REFUSED: tuple[tuple[str, str, str], ...] = (
    ("POST", "/api/pull", f"{_STORE}; use: ollama pull MODEL"),
    ("POST", "/api/push", f"{_STORE}; use: ollama push MODEL"),
    ("POST", "/api/create", f"{_STORE}; use: ollama create MODEL"),
    ("POST", "/api/copy", f"{_STORE}; use: ollama cp SOURCE DESTINATION"),
    ("DELETE", "/api/delete", f"{_STORE}; use: ollama rm MODEL"),
    ("POST", "/api/blobs/{digest}", f"{_STORE}; use: ollama create MODEL"),
    ("HEAD", "/api/blobs/{digest}", f"{_STORE}; use: ollama create MODEL"),
    ("POST", "/api/embed", "embeddings are not served here; use Ollama's own server (port 11434)"),
    ("POST", "/api/embeddings", "embeddings are not served here; use Ollama's own server (port 11434)"),
    ("POST", "/v1/embeddings", "embeddings are not served here; use Ollama's own server (port 11434)"),
    ("POST", "/v1/responses", "the responses API is not served here; use /v1/chat/completions"),
    ("POST", "/v1/messages", "Anthropic's API is not served here; use /v1/chat/completions or Ollama's own server"),
)


def refusal_routes() -> list[web.RouteDef]:
    """Every refused route, answering 501."""
    return [web.route(method, path, _refuser(path, remedy)) for method, path, remedy in REFUSED]


def _refuser(path: str, remedy: str) -> Handler:
    async def refuse(request: web.Request) -> web.StreamResponse:
        raise StatusError(501, f"{request.path}: {remedy}")

    return refuse
