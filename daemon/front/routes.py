"""The application: its routes, and the shape of its errors."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence

from aiohttp import web
from aiohttp.typedefs import Handler

from pilotfish import __version__
from pilotfish.daemon.front import library, ollama_api, openai_api, sharing
from pilotfish.daemon.front.access import Access
from pilotfish.daemon.front.bodies import MAX_BODY
from pilotfish.daemon.front.catalog import Catalog
from pilotfish.daemon.front.client_name import note_client
from pilotfish.daemon.front.computed_here import EnginesHere
from pilotfish.daemon.front.errors import ollama_error, openai_error, status_of
from pilotfish.daemon.front.inference import Inference
from pilotfish.daemon.front.keys import CATALOG, ENGINES, INFERENCE, OWNERSHIP, RUNNERS, SETTINGS, STORE, UPSTREAM
from pilotfish.daemon.front.ownership import Ownership
from pilotfish.daemon.front.refusals import refusal_routes
from pilotfish.daemon.front.relay_rules import LOADED
from pilotfish.daemon.front.rendering_ollama import rendering
from pilotfish.daemon.front.runners import Runners
from pilotfish.daemon.front.settings import FrontSettings, Upstream
from pilotfish.daemon.front.streams import json_response
from pilotfish.daemon.front.upstream_client import UpstreamClient
from pilotfish.hooks.errors import PilotfishError
from pilotfish.manifests.store import Store

log = logging.getLogger("pilotfish.front")

OLLAMA_API = "0.33.0"  # the version of Ollama's API spoken here: clients switch features by it


def create_app(store: Store, settings: FrontSettings, mounted: Sequence[web.RouteDef] = ()) -> web.Application:
    """The front over a model store. Runners start on demand and end with the application.

    `mounted` are routes of others, behind the same gate.
    """
    access = Access(settings.origins, settings.host)
    app = web.Application(client_max_size=MAX_BODY, middlewares=[access.middleware(), note_client, _shape_errors])
    _furnish(app, store, settings)
    app.on_response_prepare.append(access.add_headers)
    app.add_routes([*_routes(), *mounted])
    return app


def create_sharing_app(
    store: Store, settings: FrontSettings, upstream: Upstream, mark: str, mounted: Sequence[web.RouteDef] = ()
) -> web.Application:
    """What the front does itself where it stands before an upstream; `mark` is on what it asks there.

    `mounted` are as for `create_app`: for them our own rules hold, whatever the upstream's are.
    """
    admission = sharing.admission(Access(settings.origins, settings.host).middleware())
    app = web.Application(client_max_size=MAX_BODY, middlewares=[admission, note_client, _shape_errors, sharing.share])

    async def client(app: web.Application) -> AsyncIterator[None]:
        app[UPSTREAM] = UpstreamClient(upstream.address, mark)
        yield
        await app[UPSTREAM].aclose()

    app.cleanup_ctx.append(client)
    _furnish(app, store, settings)
    app[OWNERSHIP] = Ownership(app[CATALOG], upstream, app[ENGINES])
    app.on_response_prepare.append(sharing.prepare)
    app.add_routes([*_generating(), web.get(LOADED, sharing.handle_loaded, allow_head=False), *mounted])
    return app


def _furnish(app: web.Application, store: Store, settings: FrontSettings) -> None:
    app[SETTINGS] = settings
    app[STORE] = store
    app[ENGINES] = EnginesHere(store)
    app[CATALOG] = Catalog(store)
    app.cleanup_ctx.append(_runners)


def _generating() -> list[web.RouteDef]:
    return [
        web.post("/api/generate", ollama_api.handle_generate),
        web.post("/api/chat", ollama_api.handle_chat),
        web.post("/v1/completions", openai_api.handle_completions),
        web.post("/v1/chat/completions", openai_api.handle_chat_completions),
    ]


def _routes() -> list[web.RouteDef]:
    return [
        *_generating(),
        web.get("/", _root),
        web.get("/api/version", _version),
        web.get("/api/tags", library.handle_tags),
        web.get("/api/ps", library.handle_ps, allow_head=False),
        web.post("/api/show", library.handle_show),
        web.get("/v1/models", openai_api.handle_models, allow_head=False),
        web.get("/v1/models/{model:.+}", openai_api.handle_model, allow_head=False),
        *refusal_routes(),
    ]


async def _runners(app: web.Application) -> AsyncIterator[None]:
    app[RUNNERS] = runners = Runners(app[SETTINGS])
    async with rendering(app[SETTINGS], app.get(UPSTREAM), app[STORE]) as renderer:
        app[INFERENCE] = Inference(app[CATALOG], runners, app[SETTINGS], app[ENGINES], renderer)
        yield
    await runners.aclose()


async def _root(request: web.Request) -> web.Response:
    return web.Response(text="pilotfish is running")


async def _version(request: web.Request) -> web.Response:
    return json_response({"version": OLLAMA_API, "pilotfish": __version__})


@web.middleware
async def _shape_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Errors in the words and shape of the API that was asked."""
    try:
        return await handler(request)
    except PilotfishError as error:
        return _error(request, status_of(error), str(error))
    except web.HTTPNotFound:
        return web.Response(status=404, text="404 page not found")
    except web.HTTPMethodNotAllowed as error:
        allowed = ", ".join(sorted(error.allowed_methods))
        return web.Response(status=405, text="405 method not allowed", headers={"Allow": allowed})
    except web.HTTPRequestEntityTooLarge:
        return _error(request, 413, f"the request body is larger than {MAX_BODY >> 20} MiB; send less text")
    except (web.HTTPException, ConnectionError):  # the latter: the client is gone
        raise
    except Exception as error:
        log.exception("%s %s failed", request.method, request.path)
        return _error(request, 500, f"internal error: {type(error).__name__}: {error}; see the log of pilotfish serve")


def _error(request: web.Request, status: int, message: str) -> web.Response:
    openai = request.path.startswith("/v1/")
    return json_response(openai_error(status, message) if openai else ollama_error(message), status)
