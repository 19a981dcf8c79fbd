"""llama-server's endpoints that the runner does not answer itself, and what becomes of them.

docs/compatibility.md shows both lists.
"""

from __future__ import annotations

from typing import NoReturn

from aiohttp import web
from aiohttp.typedefs import Handler

from pilotfish.daemon.runner.responding import json_response
from pilotfish.daemon.runner.wire.completion import error_json
from pilotfish.hooks.errors import UnsupportedRequest

# Relayed to the stock server beside the runner; where there is none, refused. Method, path, what it is.
RELAYED: tuple[tuple[str, str, str], ...] = (
    ("POST", "/infill", "infilling"),
    ("POST", "/responses", "the responses API"),
    ("POST", "/v1/responses", "the responses API"),
    ("POST", "/responses/input_tokens", "counting tokens"),
    ("POST", "/v1/responses/input_tokens", "counting tokens"),
    ("POST", "/v1/messages", "the messages API"),
    ("POST", "/v1/messages/count_tokens", "counting tokens"),
    ("POST", "/chat/completions/input_tokens", "counting tokens"),
    ("POST", "/v1/chat/completions/input_tokens", "counting tokens"),
    ("POST", "/v1/chat/completions/control", "control of running chats"),
    ("POST", "/lora-adapters", "LoRA adapters"),
)

# What stock refuses as well, with the same status, when it is launched without a flag for it; with that flag, the
# launch is stock's. Starting a second server to hear it say no would cost the memory for the model once more.
REFUSED: tuple[tuple[str, str, str], ...] = (
    ("POST", "/embedding", "embeddings"),
    ("POST", "/embeddings", "embeddings"),
    ("POST", "/v1/embeddings", "embeddings"),
    ("POST", "/rerank", "reranking"),
    ("POST", "/reranking", "reranking"),
    ("POST", "/v1/rerank", "reranking"),
    ("POST", "/v1/reranking", "reranking"),
    ("POST", "/audio/transcriptions", "audio"),
    ("POST", "/v1/audio/transcriptions", "audio"),
    ("POST", "/props", "changing global properties"),
    ("POST", "/slots/{id}", "slots action"),
)


def unserved_routes() -> list[web.RouteDef]:
    """All of them."""
    relayed = [web.route(method, path, _relayed(what)) for method, path, what in RELAYED]
    return relayed + [web.route(method, path, _refused(what)) for method, path, what in REFUSED]


def _relayed(what: str) -> Handler:
    async def leave(request: web.Request) -> NoReturn:
        raise UnsupportedRequest(
            f"This server does not support {what}. Turn speculation off for this model to reach the stock llama-server"
        )

    return leave


def _refused(what: str) -> Handler:
    async def refuse(request: web.Request) -> web.Response:
        refusal = UnsupportedRequest(f"This server does not support {what}. Start it with a flag for it")
        return json_response({"error": error_json(refusal)}, 501)

    return refuse
