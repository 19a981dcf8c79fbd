"""A whole working session on stock Ollama, its n-gram modes, the overlaid Ollama and `pilotfish serve`, in turns."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from pilotfish.daemon.config.paths import state_dir
from pilotfish.daemon.lab.agent_session import AgentSession, Worked, work
from pilotfish.daemon.lab.floor_servers import Ollamas, OllamaServer, remembered_state, serving
from pilotfish.daemon.lab.workloads import Mode, among
from pilotfish.hooks.errors import PilotfishError
from pilotfish.manifests.names import ModelName
from pilotfish.manifests.store import Store

STOCK, OVERLAID, FRONT, PLAIN = "stock", "overlaid", "pilotfish serve", "pilotfish serve, plain"
MODEL = "agent"
_SPEC_TYPE = "LLAMA_ARG_SPEC_TYPE"  # how a llama-server that Ollama starts learns its `--spec-type`


@dataclass(frozen=True, slots=True)
class Contestant:
    """One way to be served: a server, what its environment has besides, and the options of every request."""

    name: str
    server: str
    environment: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)


def contestants(ngram_modes: Sequence[str], *, overlaid: bool = True) -> list[Contestant]:
    """Everyone who takes part. The two that `pilotfish serve` answers share one server."""
    own = [Contestant(FRONT, FRONT), Contestant(PLAIN, FRONT, options={"speculate": False})]
    modes = [Contestant(f"stock, {mode}", f"stock, {mode}", {_SPEC_TYPE: mode}) for mode in ngram_modes]
    return [Contestant(STOCK, STOCK), *modes, *([Contestant(OVERLAID, OVERLAID)] if overlaid else []), *own]


@dataclass(slots=True)
class Course:
    """One contestant in one way of sampling: its session in every round, or why there is none."""

    contestant: str
    mode: str
    sessions: list[Worked] = field(default_factory=list)
    failure: str = ""

    def middle(self, of: Callable[[Worked], float]) -> float:
        """The median over the rounds; 0.0 where nothing was measured."""
        return median(map(of, self.sessions)) if self.sessions else 0.0


@dataclass(frozen=True, slots=True)
class AgentBench:
    """What is measured, on the weights `model`, in a `folder` on the same file system, if it can be."""

    ollamas: Ollamas
    model: Path
    session: AgentSession
    folder: Path
    modes: Sequence[Mode]
    rounds: int = 3
    limit: int = 192  # tokens of an answer
    context: int = 8192
    ngram_modes: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    state: Path | None = None  # whose certificates count; the user's by default
    only: Sequence[str] = ()  # whom to measure beside stock; everyone by default

    async def run(self, report: Callable[[str], None] = lambda what: None) -> list[Course]:
        """Measure. Who fails is left out from there on, with the reason; raises EngineError where a server fails."""
        models = self.folder / "models"
        Store(models).add_gguf(ModelName.parse(MODEL), self.model)
        everyone = among(contestants(self.ngram_modes), (STOCK, *self.only) if self.only else (), "--only")
        courses = {(one.name, mode.name): Course(one.name, mode.name) for mode in self.modes for one in everyone}
        async with self._servers(everyone, models) as servers:
            for one in everyone:
                report(f"{one.name} loads")
                await self._warm_up(servers[one.server], one)
            for number in range(self.rounds):
                for mode in self.modes:
                    # Who comes first takes turns, so that none is always the one on warm or on tired cores.
                    for one in everyone if number % 2 == 0 else reversed(everyone):
                        report(f"round {number + 1} of {self.rounds}, {mode.name}: {one.name}")
                        await self._course(courses[one.name, mode.name], servers[one.server], one, mode)
        return list(courses.values())

    async def _course(self, course: Course, server: OllamaServer, one: Contestant, mode: Mode) -> None:
        if course.failure:
            return
        try:
            course.sessions.append(await work(server, MODEL, self.session, self._options(one, mode)))
        except PilotfishError as error:
            course.failure = str(error)

    async def _warm_up(self, server: OllamaServer, one: Contestant) -> None:
        """Load: a first load hashes the weights and checks the lane, which is remembered."""
        with contextlib.suppress(PilotfishError):  # the session will say it
            options = {**self._options(one, self.modes[0]), "num_predict": 1}
            await server.chat(MODEL, [{"role": "user", "content": "Hi"}], options)

    def _options(self, one: Contestant, mode: Mode) -> dict[str, Any]:
        return {**mode.options, "num_predict": self.limit, "num_ctx": self.context, **one.options}

    @contextlib.asynccontextmanager
    async def _servers(self, everyone: Sequence[Contestant], models: Path) -> AsyncIterator[dict[str, OllamaServer]]:
        """Every server that somebody needs, by name."""
        binaries = {OVERLAID: self.ollamas.overlaid, FRONT: Path(sys.executable).with_name("pilotfish")}
        servers: dict[str, OllamaServer] = {}
        async with contextlib.AsyncExitStack() as stack:
            for number, one in enumerate(everyone):
                if one.server in servers:
                    continue
                folder = self.folder / f"server-{number}"
                environment = {**self._environment(folder), **self.environment, **one.environment}
                running = serving(one.server, binaries.get(one.server, self.ollamas.stock), models, folder, environment)
                servers[one.server] = await stack.enter_async_context(running)
            yield servers

    def _environment(self, folder: Path) -> dict[str, str]:
        state = remembered_state(self.state or state_dir(), folder / "state")
        config = folder / "pilotfish.toml"
        config.touch()  # the defaults, whatever the user's own file says
        return {"PILOTFISH_STATE": str(state), "PILOTFISH_CONFIG": str(config)}


def exact(courses: Sequence[Course]) -> bool:
    """Whether `pilotfish serve` wrote the same in every round of every mode, with drafts and without."""
    texts: dict[str, set[tuple[str, ...]]] = {}
    for course in courses:
        if course.contestant in (FRONT, PLAIN):
            texts.setdefault(course.mode, set()).update(worked.texts for worked in course.sessions)
    return all(len(written) == 1 for written in texts.values())


def document(bench: AgentBench, courses: Sequence[Course], about: Mapping[str, Any]) -> dict[str, Any]:
    """The result, JSON-ready; the texts are left out."""
    settings = {"ollama": bench.ollamas.build, "model": str(bench.model), "rounds": bench.rounds, "limit": bench.limit}
    return {
        "about": {**settings, "context": bench.context, **about},
        "exact": exact(courses),
        "courses": [_course_json(course, bench.session) for course in courses],
    }


def _course_json(course: Course, session: AgentSession) -> dict[str, Any]:
    return {
        "contestant": course.contestant,
        "mode": course.mode,
        "failure": course.failure,
        "seconds": course.middle(lambda worked: worked.seconds),
        "first": course.middle(lambda worked: worked.first),
        "tokens": course.middle(lambda worked: worked.tokens),
        "rate_repeating": course.middle(lambda worked: worked.rate(session, repeats=True)),
        "rate_free": course.middle(lambda worked: worked.rate(session, repeats=False)),
        "rounds": [worked.seconds for worked in course.sessions],
        "turns": [_turns_json(worked) for worked in course.sessions],
    }


def _turns_json(worked: Worked) -> list[dict[str, float]]:
    return [
        {"prompt": reply.prompt, "tokens": reply.tokens, "first": reply.first, "seconds": reply.seconds}
        for reply in worked.replies
    ]
