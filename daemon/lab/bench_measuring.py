"""One request as its client sees it: ids over the wall, from the first byte sent to the last event received."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from pilotfish.daemon.front.runner_client import RunnerClient
from pilotfish.daemon.lab.asking import Client
from pilotfish.daemon.lab.bench_tasks import Task


@dataclass(frozen=True, slots=True)
class TimedAnswer:
    """Times are seconds since the request was sent. `tokens` counts what was committed, the last one included.

    `ids` lacks what a server does not stream: stock llama-server leaves out ids inside a character of several bytes,
    and an Ollama that is not pilotfish's streams none. `text` is complete in any case.
    """

    ids: tuple[int, ...]
    text: str
    tokens: int
    first_token: float
    seconds: float
    drafted: int = 0
    accepted: int = 0
    parity: str = ""
    lane: str = ""

    @property
    def decode_seconds(self) -> float:
        """From the first token to the end."""
        return self.seconds - self.first_token

    @property
    def decoded(self) -> int:
        """Tokens that came after the first one."""
        return max(0, self.tokens - 1)


@dataclass(frozen=True, slots=True)
class Chunk:
    """One event of a stream; the last one says how many tokens there were and how they came about."""

    ids: tuple[int, ...] = ()
    text: str = ""
    tokens: int = 0
    drafted: int = 0
    accepted: int = 0
    parity: str = ""
    lane: str = ""


Chunks = AsyncGenerator[Chunk, None]


class Answers(Protocol):
    """A server that can be asked."""

    def chunks(self, task: Task) -> Chunks:
        """Send the task and stream its answer."""
        ...


class LlamaServer:
    """A server with llama-server's protocol. `extra` are further fields of every request."""

    def __init__(self, client: RunnerClient, extra: Mapping[str, Any] | None = None) -> None:
        self._client = client
        self._extra = dict(extra or {})

    async def chunks(self, task: Task) -> Chunks:
        body = {**task.options, "prompt": list(task.ids), "n_predict": task.n_predict, "cache_prompt": True}
        events = self._client.completion({**body, "return_tokens": True, **self._extra})
        async with contextlib.aclosing(events):
            async for event in events:
                yield _native(event)


class BenchedServer:
    """An Ollama-compatible server, asked with raw prompts, so that its model must be the one that is measured."""

    def __init__(self, client: Client, model: str, context: int) -> None:
        self._client = client
        self._model = model
        self._context = context

    async def chunks(self, task: Task) -> Chunks:
        options = {**task.options, "num_predict": task.n_predict, "num_ctx": self._context, "return_tokens": True}
        body = {"model": self._model, "prompt": task.prompt, "raw": True, "options": options}
        events = self._client.stream("/api/generate", body)
        async with contextlib.aclosing(events):
            async for event in events:
                yield _ollama(event)


async def measure(chunks: Chunks, clock: Callable[[], float] = time.perf_counter) -> TimedAnswer:
    """Read an answer to its end. The request is sent when the first chunk is awaited."""
    ids: list[int] = []
    texts: list[str] = []
    first, last = None, Chunk()
    started = clock()
    async with contextlib.aclosing(chunks):
        async for chunk in chunks:
            if first is None and (chunk.ids or chunk.text):
                first = clock()
            ids += chunk.ids
            texts.append(chunk.text)
            last = chunk
    ended = clock()
    return TimedAnswer(
        ids=tuple(ids),
        text="".join(texts),
        tokens=last.tokens or len(ids),
        first_token=(ended if first is None else first) - started,
        seconds=ended - started,
        drafted=last.drafted,
        accepted=last.accepted,
        parity=last.parity,
        lane=last.lane,
    )


def _native(event: Mapping[str, Any]) -> Chunk:
    ids, text = tuple(event.get("tokens", ())), str(event.get("content", ""))
    if not event.get("stop"):
        return Chunk(ids, text)
    timings, report = event.get("timings", {}), event.get("pilotfish", {})
    return Chunk(
        ids=ids,
        text=text,
        tokens=int(event.get("tokens_predicted", 0)),
        drafted=int(timings.get("draft_n", 0)),
        accepted=int(timings.get("draft_n_accepted", 0)),
        parity=str(report.get("parity", "")),
        lane=str(report.get("lane", "")),
    )


def _ollama(event: Mapping[str, Any]) -> Chunk:
    report = event.get("pilotfish", {})
    return Chunk(
        ids=tuple(report.get("tokens", ())),
        text=str(event.get("response", "")),
        tokens=int(event.get("eval_count", 0)),
        drafted=int(report.get("draft_n", 0)),
        accepted=int(report.get("draft_n_accepted", 0)),
        parity=str(report.get("parity", "")),
        lane=str(report.get("lane", "")),
    )
