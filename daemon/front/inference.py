"""`/api/generate` and `/api/chat` as events, before they take the shape of any protocol."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass, replace

from pilotfish.daemon.front import prompts
from pilotfish.daemon.front.answer_pieces import Final, Piece, answer
from pilotfish.daemon.front.catalog import Catalog, ServedModel
from pilotfish.daemon.front.errors import StatusError
from pilotfish.daemon.front.options import Options, merge, runner_options
from pilotfish.daemon.front.requests import AnswerSettings, ChatRequest, GenerateRequest
from pilotfish.daemon.front.runners import Lease, Runners
from pilotfish.daemon.front.settings import FrontSettings


@dataclass(frozen=True, slots=True)
class Done:
    """An answer that needs no generation: the model was loaded or unloaded, or only the prompt was asked for."""

    reason: str = ""  # load, unload, or empty for a rendered prompt
    rendered: str | None = None


@dataclass(frozen=True, slots=True)
class Finished:
    """The end of a generation, with what only the front knows. Durations are seconds; `context` holds token ids."""

    final: Final
    total_duration: float
    load_duration: float
    context: tuple[int, ...] | None = None
    return_tokens: bool = False


Event = Piece | Finished | Done
Events = AsyncGenerator[Event, None]


class Inference:
    """Runs requests: finds the model, checks what it can do, leases a runner, renders, generates."""

    def __init__(self, catalog: Catalog, runners: Runners, settings: FrontSettings) -> None:
        self._catalog = catalog
        self._runners = runners
        self._defaults = Options(num_ctx=settings.num_ctx)

    async def generate(self, request: GenerateRequest) -> Events:
        """Pieces and a Finished, or one Done. Raises what the request deserves before the first event."""
        started = time.monotonic()
        settings = request.settings
        model = await self._catalog.find(settings.model)
        if not request.prompt and settings.keep_alive == 0:
            await self._runners.unload(model)
            yield Done("unload")
            return
        _refuse(model, settings, "generate", insert=bool(request.suffix), vision=request.has_images)
        if not request.raw:
            prompts.check_template(model, request.template)
        async with self._lease(model, settings) as (lease, options):
            loaded = time.monotonic()
            if not request.prompt:
                yield Done("load")
                return
            text, prompt = await self._generate_prompt(lease, model, request)
            if settings.debug_render_only:
                yield Done(rendered=text)
                return
            prompt = await _shortened(lease, model, prompt, settings, options)
            async with contextlib.aclosing(answer(lease, prompt, settings, options)) as pieces:
                async for piece in pieces:
                    context = None if request.raw or isinstance(prompt, str) else (*prompt, *piece.tokens)
                    yield _event(piece, started, loaded, options, context)

    async def chat(self, request: ChatRequest) -> Events:
        """As `generate`, for a list of messages."""
        started = time.monotonic()
        settings = request.settings
        model = await self._catalog.find(settings.model)
        if not request.messages and settings.keep_alive == 0:
            await self._runners.unload(model)
            yield Done("unload")
            return
        vision = any(message.has_images for message in request.messages)
        _refuse(model, settings, "chat", tools=request.has_tools, vision=vision)
        prompts.check_template(model)
        async with self._lease(model, settings) as (lease, options):
            loaded = time.monotonic()
            if not request.messages:
                yield Done("load")
                return
            messages = prompts.chat_messages(request, model)
            text, ids = await prompts.fit(lease, model, messages, truncate=settings.truncate)
            if settings.debug_render_only:
                yield Done(rendered=text)
                return
            prompt = await _shortened(lease, model, ids, settings, options)
            async with contextlib.aclosing(answer(lease, prompt, settings, options)) as pieces:
                async for piece in pieces:
                    yield _event(piece, started, loaded, options, None)

    @contextlib.asynccontextmanager
    async def _lease(self, model: ServedModel, settings: AnswerSettings) -> AsyncIterator[tuple[Lease, Options]]:
        options = merge(merge(self._defaults, model.options), settings.options)
        launch = runner_options(options, model.train_context)
        async with self._runners.lease(model, launch, settings.keep_alive) as lease:
            yield lease, replace(options, num_ctx=launch.num_ctx)

    async def _generate_prompt(
        self, lease: Lease, model: ServedModel, request: GenerateRequest
    ) -> tuple[str, str | list[int]]:
        if request.raw:
            return request.prompt, request.prompt
        messages = prompts.generate_messages(request, model)
        text, ids = await prompts.fit(lease, model, messages, truncate=request.settings.truncate)
        if request.context is not None:
            ids = await prompts.with_context(lease, request.context, text)
        return text, ids


async def _shortened(
    lease: Lease, model: ServedModel, prompt: str | list[int], settings: AnswerSettings, options: Options
) -> str | list[int]:
    allowed = prompts.may_shorten(model, settings)
    return await prompts.shortened(lease, prompt, num_keep=options.num_keep, allowed=allowed)


def _event(piece: Piece, started: float, loaded: float, options: Options, context: tuple[int, ...] | None) -> Event:
    if not isinstance(piece, Final):
        return piece
    return Finished(piece, time.monotonic() - started, loaded - started, context, options.return_tokens)


def _refuse(
    model: ServedModel,
    settings: AnswerSettings,
    endpoint: str,
    *,
    tools: bool = False,
    insert: bool = False,
    vision: bool = False,
) -> None:
    """Raises StatusError 400 in Ollama's words for what the model (or this front) does not do."""
    if settings.think:
        raise StatusError(400, f'"{settings.model}" does not support thinking')
    _ = model.weights  # raises for models without a runner here
    if "completion" not in model.capabilities:
        raise StatusError(400, f'"{settings.model}" does not support {endpoint}')
    missing = [what for what, wanted in (("tools", tools), ("insert", insert), ("vision", vision)) if wanted]
    if missing:
        words = "\n".join(missing)
        raise StatusError(400, f"{model.name.full} does not support {words}")
