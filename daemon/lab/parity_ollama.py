"""An ordinary Ollama and an overlaid one asked the same, with every kind of drafter: `pilotfish parity --ollama`.

Chats of two turns in one slot: all first questions, then all second ones, so that each conversation was put aside when
it goes on. The overlaid Ollama answers plainly first. Everybody else goes on from what was said then, so that one
difference makes no others, and is asked the same in the same order, so that equal histories stand behind equal answers.

Clients of Ollama get no ids. What is compared is the text of each token, and how probable each was, to the last digit:
so rows of the same bits are. Stock computes in other lanes and reads prompts in other blocks; where its answers are
others, that is told and no failure.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import tomlkit

from pilotfish.daemon.config.paths import state_dir
from pilotfish.daemon.config.reader import to_table
from pilotfish.daemon.config.types import AUTO, Config, Drafters, Engine, Plugins
from pilotfish.daemon.control import decision_log
from pilotfish.daemon.front.runner_client import RunnerClient, new_session
from pilotfish.daemon.lab import bench_replay
from pilotfish.daemon.lab.bench_systems import replay_plugins, slug, write_recording
from pilotfish.daemon.lab.depths import after_text, natural_text
from pilotfish.daemon.lab.floor_bench import OVERLAID, STOCK
from pilotfish.daemon.lab.floor_servers import OllamaReply, Ollamas, OllamaServer, remembered_state, serving
from pilotfish.daemon.lab.parity_course import ROOM, Tell
from pilotfish.daemon.lab.parity_runs import first_difference
from pilotfish.daemon.lab.parity_subject import now_and_then
from pilotfish.daemon.lab.parity_together import FOLLOW_UP
from pilotfish.daemon.lab.workloads import Mode, Workload
from pilotfish.hooks.errors import EngineError
from pilotfish.manifests.names import ModelName
from pilotfish.manifests.store import Store

MODEL = "parity"  # what the model is called
PLAIN, ORACLE, NOW_AND_THEN, JUNK = "plain", "oracle", "oracle, wrong now and then", "junk"
DRAFTING = ("suffix", ORACLE, NOW_AND_THEN, JUNK)
TURNS = 2
_HITS = "pilotfish_conversation_hits_total "


@dataclass(frozen=True, slots=True)
class OllamaTrial:
    """One answer compared with the overlaid Ollama's plain one, to a prompt of `prompt` tokens.

    `differs_at` is the index of the first other token, None if equal; `same_rows` says whether every token was as
    probable, too.
    """

    workload: str
    mode: str
    turn: int
    prompt: int
    tokens: int
    differs_at: int | None
    same_rows: bool

    @property
    def equal(self) -> bool:
        return self.differs_at is None


@dataclass(frozen=True, slots=True)
class OllamaCourse:
    """What one server answered. `restored` counts conversations that were written back; stock tells none of these."""

    title: str
    lane: str
    parity: str
    drafted: int
    accepted: int
    restored: int
    trials: tuple[OllamaTrial, ...]

    @property
    def unequal(self) -> list[OllamaTrial]:
        return [trial for trial in self.trials if not trial.equal]

    @property
    def failed(self) -> bool:
        """Whether a promise is broken: with drafts the overlaid Ollama computes the same rows."""
        return self.title != STOCK and bool(self.unequal or self.other_rows)

    @property
    def tokens(self) -> int:
        return sum(trial.tokens for trial in self.trials)

    @property
    def other_rows(self) -> int:
        return sum(not trial.same_rows for trial in self.trials)

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "unequal": len(self.unequal), "other_rows": self.other_rows}


@dataclass(frozen=True, slots=True)
class _Question:
    """One turn of a chat. `answer` is what was said plainly, as a reply and as ids."""

    workload: Workload
    mode: Mode
    turn: int
    prompt: str
    answer: OllamaReply
    ids: tuple[int, ...]

    @property
    def follow_up(self) -> str:
        return f"{self.prompt}{self.answer.text}\n\n{FOLLOW_UP}\n\n"

    def trial(self, reply: OllamaReply) -> OllamaTrial:
        differs = first_difference(self.answer.pieces, reply.pieces)
        if differs is None and reply.counts != self.answer.counts:
            differs = len(reply.pieces)
        same_rows = self.answer.logprobs == reply.logprobs
        turn = self.turn + 1
        return OllamaTrial(self.workload.name, self.mode.name, turn, reply.prompt, reply.tokens, differs, same_rows)


@dataclass(frozen=True, slots=True)
class _Drafting:
    """A way to draft under the overlaid Ollama; `replay` is a table of `bench_replay`."""

    title: str
    order: tuple[str, ...]
    replay: Mapping[str, Any] = field(default_factory=dict)


def _drafting(title: str, max_width: int) -> _Drafting:
    tables = {ORACLE: {}, NOW_AND_THEN: {"wrong_every": now_and_then(max_width)}, JUNK: {"wrong_from": 0}}
    return _Drafting(title, (bench_replay.NAME,), tables[title]) if title in tables else _Drafting(title, (title,))


@dataclass(frozen=True, slots=True)
class OllamaParity:
    """What is compared. Chats get modes and depths by turns; `folder` is best on the weights' file system.

    `environment` is for both Ollamas; `state` is whose certificates count, the user's by default.
    """

    ollamas: Ollamas
    model: Path
    workloads: Sequence[Workload]
    modes: Sequence[Mode]
    depths: Sequence[int]  # tokens of text in front of each task, about
    n_predict: int
    folder: Path
    engine: str = AUTO
    threads: int | None = None  # None: as many as each takes
    drafting: Sequence[str] = DRAFTING
    environment: Mapping[str, str] = field(default_factory=dict)
    state: Path | None = None

    async def run(self, starting: Tell = lambda what: None) -> list[OllamaCourse]:
        """The plain course, stock's, and one for each drafter. Raises EngineError where stock serves in both."""
        Store(self._models).add_gguf(ModelName.parse(MODEL), self.model)
        starting(f"{OVERLAID}, {PLAIN}")
        async with self._overlaid(_Drafting(PLAIN, ())) as server:
            questions = [question async for question in self._asked_plainly(server)]
            replies = [question.answer for question in questions]
            courses = [await _course(PLAIN, server, questions, replies)]
            widths = (await _explained(server))["lane"]["widths"]
        starting(STOCK)
        async with self._serving(STOCK, self.ollamas.stock, {}) as server:
            replies = [await self._ask(server, question.prompt, question.mode) for question in questions]
            courses.append(_compared(STOCK, questions, replies))
        for title in self.drafting:
            starting(f"{OVERLAID}, {title}")
            async with self._overlaid(_drafting(title, max(widths))) as server:
                replies = [await self._ask_drafting(server, question) for question in questions]
                courses.append(await _course(title, server, questions, replies))
        return courses

    async def _asked_plainly(self, server: OllamaServer) -> AsyncIterator[_Question]:
        """Every question as it is answered, with the answer's ids as the runner would read them."""
        async with new_session() as session:
            client = RunnerClient(session, server.model_port())
            chats = await self._chats(client)
            prompts = [f"{workload.system}\n\n{workload.prompt}\n\n".lstrip() for workload, _ in chats]
            for turn in range(TURNS):
                for number, (workload, mode) in enumerate(chats):
                    reply = await self._ask(server, prompts[number], mode)
                    ids = tuple(await client.tokenize(reply.text, add_special=False))
                    question = _Question(workload, mode, turn, prompts[number], reply, ids)
                    prompts[number] = question.follow_up
                    yield question

    async def _chats(self, client: RunnerClient) -> list[tuple[Workload, Mode]]:
        sample = "\n\n".join(workload.prompt for workload in self.workloads)
        a_letter = len(await client.tokenize(sample)) / len(sample)  # tokens
        texts = {
            depth: natural_text(self.workloads, depth, lambda text: int(len(text) * a_letter)) for depth in self.depths
        }
        turns = zip(self.workloads, itertools.cycle(self.modes), itertools.cycle(self.depths), strict=False)
        return [(after_text(workload, texts[depth]), mode) for workload, mode, depth in turns]

    async def _ask(self, server: OllamaServer, prompt: str, mode: Mode) -> OllamaReply:
        return await server.generate(MODEL, prompt, self._options(mode), logprobs=True)

    async def _ask_drafting(self, server: OllamaServer, question: _Question) -> OllamaReply:
        write_recording(self._recording, question.ids)
        return await self._ask(server, question.prompt, question.mode)

    def _options(self, mode: Mode) -> dict[str, Any]:
        context = max(self.depths) + ROOM + TURNS * self.n_predict
        threads = {"num_thread": self.threads} if self.threads else {}
        return {**mode.options, **threads, "num_predict": self.n_predict, "num_ctx": context}

    @contextlib.asynccontextmanager
    async def _overlaid(self, drafting: _Drafting) -> AsyncIterator[OllamaServer]:
        """The overlaid server; the plain one comes first, and what it finds out about the engine is known to all."""
        folder = self._course_folder(drafting.title)
        source = self.state or state_dir() if drafting.title == PLAIN else self._course_folder(PLAIN) / "state"
        state, config = remembered_state(source, folder / "state"), folder / "pilotfish.toml"
        environment = {"PILOTFISH_STATE": str(state), "PILOTFISH_CONFIG": str(config)}
        config.write_text(tomlkit.dumps(to_table(self._config(drafting))))
        async with self._serving(drafting.title, self.ollamas.overlaid, environment) as server:
            if why := _why_stock(state):
                raise EngineError(f"stock serves {self.model} in both: {why}")
            yield server

    def _config(self, drafting: _Drafting) -> Config:
        config = Config(engine=Engine(choice=self.engine), drafters=Drafters(drafting.order))
        if bench_replay.NAME not in drafting.order:
            return config
        tables = {bench_replay.NAME: {**drafting.replay, "recording": str(self._recording)}}
        plugins = Plugins((replay_plugins(self.folder),))
        return Config(engine=config.engine, drafters=Drafters(drafting.order, tables), plugins=plugins)

    @contextlib.asynccontextmanager
    async def _serving(self, title: str, binary: Path, more: Mapping[str, str]) -> AsyncIterator[OllamaServer]:
        """The server with its model loaded, which took the same question everywhere."""
        environment = {**self.environment, **more, "OLLAMA_NUM_PARALLEL": "1"}
        async with serving(title, binary, self._models, self._course_folder(title), environment) as server:
            await server.generate(MODEL, "Hi", {**self._options(self.modes[0]), "num_predict": 1})
            yield server

    def _course_folder(self, title: str) -> Path:
        return self.folder / slug(title)

    @property
    def _models(self) -> Path:
        return self.folder / "models"

    @property
    def _recording(self) -> Path:
        return self.folder / "recording.json"


def _why_stock(state: Path) -> str:
    decided = decision_log.read(state)
    return decided[-1].reason if decided and decided[-1].decision == STOCK else ""


def _compared(title: str, questions: Sequence[_Question], replies: Sequence[OllamaReply]) -> OllamaCourse:
    trials = tuple(question.trial(reply) for question, reply in zip(questions, replies, strict=True))
    return OllamaCourse(title, "", "", 0, 0, 0, trials)


async def _course(
    title: str, server: OllamaServer, questions: Sequence[_Question], replies: Sequence[OllamaReply]
) -> OllamaCourse:
    """Compared, with what the runner says of itself."""
    explained, metrics = await _explained(server), await _metrics(server)
    restored = next((line for line in metrics.splitlines() if line.startswith(_HITS)), "0")
    totals, lane = explained["totals"], explained["lane"]
    trials = _compared(title, questions, replies).trials
    counts = (totals["drafted"], totals["accepted"], int(float(restored.split()[-1])))
    return OllamaCourse(title, lane["name"], lane["parity"], *counts, trials)


async def _explained(server: OllamaServer) -> dict[str, Any]:
    async with new_session() as session:
        return await RunnerClient(session, server.model_port()).explain()


async def _metrics(server: OllamaServer) -> str:
    """Raises EngineError when the process that serves the model has none."""
    url = f"http://127.0.0.1:{server.model_port()}/metrics"
    try:
        async with new_session() as session, session.get(url, raise_for_status=True) as response:
            return await response.text()
    except aiohttp.ClientError as error:
        raise EngineError(f"{url}: {error}; is it a runner of pilotfish's?") from error
