"""An Ollama as a control, ordinary or overlaid: the same prompts, compared by bytes and by counts.

Ollama's API shows no ids, whoever serves the model, so that nobody's ids are called equal here.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass

from pilotfish.daemon.lab.asking import Client
from pilotfish.daemon.lab.bench_measuring import BenchedServer, Chunks, TimedAnswer, measure
from pilotfish.daemon.lab.bench_tasks import FIRST, Task
from pilotfish.daemon.lab.parity_runs import first_difference
from pilotfish.daemon.lab.receipts.receipt_types import Arrival, TrialTimes
from pilotfish.daemon.lab.validation.checked_prompts import CheckedPrompt
from pilotfish.daemon.lab.workloads import Mode, Workload
from pilotfish.hooks.errors import EngineError, WorldError


@dataclass(frozen=True, slots=True)
class ControlAnswer:
    """The text, how many tokens its server counted (some count the end token, some do not), and when it came."""

    text: str
    tokens: int
    times: TrialTimes


@dataclass(frozen=True, slots=True)
class ControlOllama:
    """A server at `url` that has `model`."""

    url: str
    model: str
    context: int

    async def ready(self) -> None:
        """Nothing is loaded. Raises EngineError where nobody answers, or where it does not have the model."""
        async with Client(self.url) as client:
            await self._demand(client)
            try:
                async with contextlib.aclosing(client.stream("/api/show", {"model": self.model})) as told:
                    await anext(told, None)
            except WorldError as error:
                raise EngineError(f"--control {self.url}: {error}; pull it there, or leave that Ollama out") from error

    async def answer(self, prompt: CheckedPrompt, mode: Mode, tokens: int) -> ControlAnswer:
        """Raises EngineError where nobody answers, WorldError in the server's own words."""
        async with Client(self.url) as client:
            await self._demand(client)
            task = Task(Workload(prompt.name, "open", prompt.text, ""), FIRST, mode, prompt.text, prompt.ids, tokens)
            arrivals: list[Arrival] = []
            chunks = _noted(BenchedServer(client, self.model, self.context).chunks(task), arrivals, time.perf_counter)
            return _answer(await measure(chunks), arrivals)

    async def _demand(self, client: Client) -> None:
        if not await client.alive():
            raise EngineError(f"--control: nobody answers at {self.url}; start that Ollama, or leave it out")


async def _noted(chunks: Chunks, arrivals: list[Arrival], clock: Callable[[], float]) -> Chunks:
    """The same chunks; when each with text came goes to `arrivals`."""
    started = clock()
    async for chunk in chunks:
        if chunk.text:
            arrivals.append(Arrival(clock() - started, 1))
        yield chunk


def _answer(timed: TimedAnswer, arrivals: list[Arrival]) -> ControlAnswer:
    return ControlAnswer(timed.text, timed.tokens, TrialTimes(timed.first_token, timed.seconds, tuple(arrivals)))


def first_other_byte(mine: str, others: str) -> int | None:
    """Where two texts differ, in bytes; None if they are equal.

    A budget may end inside a character: a server leaves its first bytes out, and here they are left out, too.
    """
    return first_difference(mine.rstrip("\ufffd").encode(), others.rstrip("\ufffd").encode())


def counts_agree(mine: int, others: int, *, terminated: bool) -> bool:
    """Whether two counts are one, the terminator counted or not."""
    return others in ({mine, mine - 1} if terminated else {mine})
