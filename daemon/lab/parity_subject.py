"""The model under test in a parity run, and the drafters that it is tried with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pilotfish.daemon.certify.lookup import engine_environment, find_lane
from pilotfish.daemon.chat.chat_template import ChatTemplate, Conversation
from pilotfish.daemon.config.types import STOCK_ENGINE, Config, Drafters, Plugins, Speculation
from pilotfish.daemon.core.controller import Controller, Eager
from pilotfish.daemon.core.generation import GenerationRequest, Outcome, OutputToken
from pilotfish.daemon.core.generator import Generator
from pilotfish.daemon.drafters.drafting import pool_for
from pilotfish.daemon.drafters.member import DrafterState
from pilotfish.daemon.drafters.memory_bounds import private_bytes
from pilotfish.daemon.drafters.memory_budget import memory_budget_for
from pilotfish.daemon.lab.workloads import Mode, Workload
from pilotfish.daemon.registry.chosen_verifier import chosen_verifier
from pilotfish.daemon.registry.registry import Registry
from pilotfish.daemon.runner.described_model import described
from pilotfish.daemon.runner.long_prompts import long_prompts_read, read_long_prompts
from pilotfish.hooks.errors import EngineError
from pilotfish.hooks.protocols import TargetEngine, Verifier
from pilotfish.hooks.types import EngineOptions, Lane, Parity, TargetPin
from pilotfish.manifests.pins import pin_file

LOADING_SECONDS = 600.0  # what drafters with something to load may take


@dataclass(frozen=True, slots=True)
class Contender:
    """Drafters as a parity run uses them, each with its config table. `replays` adds the plain answer to the tables."""

    title: str
    tables: Mapping[str, Mapping[str, Any]]
    replays: bool = False


def contenders_for(lane: Lane) -> tuple[Contender, ...]:
    """What every answer is compared with: right, partly right and wrong drafters."""
    nth = now_and_then(lane.max_width)
    word = {2: "second", 3: "third"}[nth]
    return (
        Contender("suffix", {"suffix": {}}),
        Contender("oracle", {"oracle": {}}, replays=True),
        Contender(f"oracle, every {word} wrong", {"oracle": {"wrong_every": nth}}, replays=True),
        Contender("junk", {"oracle": {"wrong_every": 1}}, replays=True),
    )


N_CONTENDERS = 4


def now_and_then(max_width: int) -> int:
    """Every how manieth token is wrong of a drafter that is partly right.

    In a lane of three, rounds of two proposals never reach a third token, so every second one is wrong there.
    """
    return 2 if max_width <= 3 else 3


def contenders_of(config: Config, names: Sequence[str]) -> tuple[Contender, ...]:
    """The config's drafters of these names, each alone, and from two on all together."""
    tables = {name: config.drafters.tables.get(name, {}) for name in names}
    alone = [Contender(name, {name: table}) for name, table in tables.items()]
    return (*alone, *([Contender("all together", tables)] if len(tables) > 1 else []))


@dataclass(frozen=True, slots=True)
class ParityAnswer:
    """The ids of one answer and how it was made."""

    tokens: tuple[int, ...]
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Subject:
    """A loaded model under test. `title` is what its results are shown under."""

    title: str
    pin: TargetPin
    engine: TargetEngine
    template: ChatTemplate
    verifier: Verifier
    options: EngineOptions
    before: int = 0  # bytes of private memory before the model was loaded
    plugins: Plugins = field(default_factory=Plugins)
    _kept: dict[str, Generator] = field(default_factory=dict)  # by contender: drafters may take long to load

    @classmethod
    def load(
        cls,
        path: Path,
        state_dir: Path | None,
        *,
        title: str = "",
        verifier: str = STOCK_ENGINE,
        lane: Lane | None = None,
        options: EngineOptions | None = None,
        certified: bool = False,
        plugins: Plugins | None = None,
    ) -> Subject:
        """Load the GGUF at `path`, or the MLX model whose manifest it is, with the verifier of that name, in `lane` or
        in the one that the check at load finds.

        `close` it afterwards. With `certified` a certificate's lane comes first. Its environment stays in force, so one
        process can do that for one model only.
        """
        engine_of = chosen_verifier(Registry.load(), verifier)
        pin = pin_file(path, state_dir)
        options = replace(options or EngineOptions(), state_dir=state_dir)
        if lane is None and certified:
            lane = find_lane(pin, (engine_of,), options).lane
        before = private_bytes()
        with engine_environment(lane):
            engine = engine_of.load(pin, lane, options)
        template = ChatTemplate.of_model(described(path).chat_template, pin.tokenizer, engine.tokenizer)
        title = title or pin.quantization or pin.name
        return cls(title, pin, engine, template, engine_of, options, before, plugins or Plugins())

    def close(self) -> None:
        """Let every drafter go, then the engine."""
        for generator in self._kept.values():
            generator.pool.close()
        self.engine.close()

    def read_prompts(self, how: str) -> str:
        """Have prompts read from now on as `[engine] prompts` says; where long ones are read. From fast no way back."""
        free = memory_budget_for(self.pin, self.verifier, self.options, self.before).free
        read_long_prompts(self.engine, how, free)
        return long_prompts_read(self.engine)

    def request(self, workload: Workload, mode: Mode, n_predict: int) -> GenerationRequest:
        """The workload as ids, with the mode's sampling."""
        return self._request(_messages(workload), mode, n_predict)

    def next_request(
        self, workload: Workload, mode: Mode, n_predict: int, said: Sequence[int], follow_up: str
    ) -> GenerationRequest:
        """The next turn of a chat in which the workload was answered with `said`: its text, and `follow_up`."""
        text = self.engine.tokenizer.decode(said, special=False).decode("utf-8", "replace")
        turn = [{"role": "assistant", "content": text}, {"role": "user", "content": follow_up}]
        return self._request([*_messages(workload), *turn], mode, n_predict)

    def _request(self, messages: Sequence[Mapping[str, str]], mode: Mode, n_predict: int) -> GenerationRequest:
        prompt = self.template.render(Conversation(messages))
        return GenerationRequest(
            prompt=tuple(self.engine.tokenizer.encode(prompt)),
            sampling=mode.sampling,
            n_predict=n_predict,
        )

    def answer(
        self, request: GenerationRequest, contender: Contender | None, plain: Sequence[int] = ()
    ) -> ParityAnswer:
        """Answer `request`, plainly without a contender."""
        return answered(self._generator(contender, plain), request)

    def generator(self, config: Config, controller: Callable[..., Controller]) -> Generator:
        """What answers with the drafters of `config`, as soon as those are ready. Raises EngineError for one that
        cannot be had. They go when the subject is closed."""
        made = self._loaded(self._made(config, controller))
        self._kept[f"made {len(self._kept)}"] = made
        return made

    def _generator(self, contender: Contender | None, plain: Sequence[int]) -> Generator:
        if contender is None:
            return self._new({})
        if contender.replays:
            return self._new({name: {**table, "tokens": list(plain)} for name, table in contender.tables.items()})
        if contender.title not in self._kept:
            self._kept[contender.title] = self._loaded(self._new(contender.tables))
        return self._kept[contender.title]

    def _new(self, tables: Mapping[str, Mapping[str, Any]]) -> Generator:
        speculation = Speculation(parity=Parity.NONE, deadline_ms=60_000)
        return self._made(Config(speculation, Drafters(tuple(tables), tables), plugins=self.plugins), Eager)

    def _made(self, config: Config, controller: Callable[..., Controller]) -> Generator:
        pool = pool_for(self.engine, self.pin, self.verifier, self.options, config, before=self.before)
        registry = Registry.load(config)
        return Generator(self.engine, self.pin, registry, config, controller=controller, pool=pool)

    def _loaded(self, generator: Generator) -> Generator:
        """The same, once its drafters are ready. Raises EngineError when one cannot be had."""
        generator.pool.settle(LOADING_SECONDS)
        for name in generator.config.drafters.order:
            found = generator.pool.describe().get(name)
            if found is None:
                problems = "; ".join(map(str, generator.registry.problems))
                why = f"{self.pin.name}: no drafts in its lane: {self.engine.lane.reason}"
                raise EngineError(problems or f"{why}; `pilotfish certify {self.pin.name}` looks for a wider one")
            if found["state"] != DrafterState.READY:
                raise EngineError(f"drafter {name} is {found['state']}: {found['about']}")
        return generator


def answered(generator: Generator, request: GenerationRequest) -> ParityAnswer:
    """`request`, to its end."""
    output_tokens: list[OutputToken] = []
    outcome = generator.generate(request, output_tokens.extend, lambda: False)
    return ParityAnswer(tuple(output_token.token for output_token in output_tokens), outcome)


def _messages(workload: Workload) -> list[dict[str, str]]:
    messages = [{"role": "system", "content": workload.system}, {"role": "user", "content": workload.prompt}]
    return messages if workload.system else messages[1:]
