"""`/api/generate` and `/api/chat` as events, before they take the shape of any protocol."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial

from pilotfish.daemon.chat.answers.answer_format import AnswerReading
from pilotfish.daemon.front import prompts
from pilotfish.daemon.front.answer_pieces import Final, Piece, answer
from pilotfish.daemon.front.catalog import Catalog, ServedModel
from pilotfish.daemon.front.computed_here import Obstacle
from pilotfish.daemon.front.errors import StatusError
from pilotfish.daemon.front.options import Options, merge, runner_options
from pilotfish.daemon.front.reading_pieces import read_pieces
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
Render = Callable[[Lease, ServedModel], Awaitable[prompts.RenderedPrompt]]


class Inference:
    """Runs requests: finds the model, checks what it can do, leases a runner, renders, generates."""

    def __init__(
        self,
        catalog: Catalog,
        runners: Runners,
        settings: FrontSettings,
        obstacle: Obstacle,
        renderer: prompts.PromptRenderer | None = None,
    ) -> None:
        """`renderer` makes prompts; without one the chat templates do that come with the weights."""
        self._obstacle = obstacle
        self._renderer = renderer
        self._catalog = catalog
        self._runners = runners
        self._defaults = Options(num_ctx=settings.num_ctx)
        self._slots = settings.parallel

    def generate(self, request: GenerateRequest) -> Events:
        """Pieces and a Finished, or one Done. Raises what the request deserves before the first event."""

        def check(model: ServedModel) -> None:
            _refuse(model, request.settings, "generate", insert=bool(request.suffix), vision=request.has_images)
            if not request.raw:
                prompts.check_template(model, request.template, rendered_by_ollama=self._renderer is not None)

        render = partial(_generate_prompt, request, self._renderer)
        return self._answer(request.settings, check, render if request.prompt else None, with_context=not request.raw)

    def chat(self, request: ChatRequest) -> Events:
        """As `generate`, for a list of messages."""

        def check(model: ServedModel) -> None:
            vision = any(message.has_images for message in request.messages)
            _refuse(model, request.settings, "chat", tools=request.has_tools, vision=vision)
            prompts.check_template(model, rendered_by_ollama=self._renderer is not None)

        render = partial(_chat_prompt, request, self._renderer) if request.messages else None
        return self._answer(request.settings, check, render, is_chat=True)

    async def _answer(
        self,
        settings: AnswerSettings,
        check: Callable[[ServedModel], None],
        render: Render | None,
        *,
        with_context: bool = False,
        is_chat: bool = False,
    ) -> Events:
        """`check` raises for what the model cannot do. Without `render` there is nothing to say: it is loaded, or, with
        a `keep_alive` of 0, unloaded."""
        started = time.monotonic()
        model = await self._catalog.find(settings.model)
        if not render and settings.keep_alive == 0:
            await self._runners.unload(model)
            yield Done("unload")
            return
        check(model)
        if why := await asyncio.to_thread(self._obstacle, model):
            raise StatusError(400, f"model '{model.short}': {why}; run it through Ollama (`ollama serve`)")
        async with self._lease(model, settings) as (lease, options):
            loaded = time.monotonic()
            if not render:
                yield Done("load")
                return
            rendered = await render(lease, model)
            if settings.debug_render_only:
                yield Done(rendered=rendered.text)
                return
            prompt: str | list[int] = rendered.ids or rendered.text
            shift = prompts.shifts(model, settings)
            may_lose = settings.truncate and shift
            prompt = await prompts.shortened(lease, prompt, num_keep=options.num_keep, allowed=may_lose)
            by_ollama = not is_chat or bool(model.template)  # who would render this prompt there
            written = answer(
                lease, prompt, settings, options, shift=shift, unsaid_if_zero=by_ollama, fields=rendered.fields
            )
            async with contextlib.aclosing(written), contextlib.aclosing(_read(written, rendered.reading)) as pieces:
                async for piece in pieces:
                    context = (*prompt, *piece.tokens) if with_context and not isinstance(prompt, str) else None
                    yield _event(piece, started, loaded, options, context)

    @contextlib.asynccontextmanager
    async def _lease(self, model: ServedModel, settings: AnswerSettings) -> AsyncIterator[tuple[Lease, Options]]:
        options = merge(merge(self._defaults, model.options), settings.options)
        launch = runner_options(options, model.train_context, self._slots)
        async with self._runners.lease(model, launch, settings.keep_alive) as lease:
            yield lease, replace(options, num_ctx=launch.num_ctx)


def _read(pieces: AsyncGenerator[Piece, None], reading: AnswerReading) -> AsyncGenerator[Piece, None]:
    return read_pieces(pieces, reading) if reading.reads else pieces


async def _generate_prompt(
    request: GenerateRequest, renderer: prompts.PromptRenderer | None, lease: Lease, model: ServedModel
) -> prompts.RenderedPrompt:
    if request.raw:
        return prompts.RenderedPrompt(request.prompt)
    messages = prompts.generate_messages(request, model)
    wish = prompts.ChatWish(think=request.settings.think, schema=request.settings.schema)
    chat = prompts.ChatToRender(model, messages, wish, renderer)
    rendered = await prompts.fit(lease, chat, truncate=request.settings.truncate)
    if request.context is None:
        return rendered
    return replace(rendered, ids=await prompts.with_context(lease, request.context, rendered.text))


async def _chat_prompt(
    request: ChatRequest, renderer: prompts.PromptRenderer | None, lease: Lease, model: ServedModel
) -> prompts.RenderedPrompt:
    messages = prompts.chat_messages(request, model)
    settings = request.settings
    wish = prompts.ChatWish(
        request.tools, request.tool_choice, request.parallel_tool_calls, settings.think, settings.schema
    )
    return await prompts.fit(lease, prompts.ChatToRender(model, messages, wish, renderer), truncate=settings.truncate)


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
    if settings.think and "thinking" not in model.capabilities:
        raise StatusError(400, f'"{settings.model}" does not support thinking')
    _ = model.weights  # raises for models without a runner here
    if "completion" not in model.capabilities:
        raise StatusError(400, f'"{settings.model}" does not support {endpoint}')
    wishes = (("tools", tools), ("insert", insert), ("vision", vision))
    missing = [what for what, wanted in wishes if wanted and what not in model.capabilities]
    if missing:
        words = "\n".join(missing)
        raise StatusError(400, f"{model.name.full} does not support {words}")
