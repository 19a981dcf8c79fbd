"""The runner's link to the daemon: plans come in and are followed between two requests, reports go out."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from pilotfish.daemon.config.types import Engine
from pilotfish.daemon.control.address import socket_path
from pilotfish.daemon.control.control_client import ControlClient
from pilotfish.daemon.control.plans import Plan, Registration, Report, needs_new_registry
from pilotfish.daemon.core.generator import Generator
from pilotfish.daemon.core.live import Sight
from pilotfish.daemon.registry.registry import Registry
from pilotfish.daemon.runner.conversation_memory import remembered_by
from pilotfish.daemon.runner.launch_arguments import Launch
from pilotfish.daemon.runner.long_prompts import long_prompts_read
from pilotfish.daemon.runner.own_drafter import with_own_drafter
from pilotfish.hooks.errors import ConfigError

log = logging.getLogger("pilotfish.runner")

EXPLAIN_EVERY = 2.0  # seconds, while somebody looks and there is news


@contextlib.asynccontextmanager
async def linked(
    generator: object, launch: Launch, port: int, begun_with: Plan, on_engine: Callable[[Engine], None]
) -> AsyncIterator[None]:
    """Follow the daemon, whether it runs now or only later, until the block ends.

    `begun_with` is what the model was loaded with; `on_engine` is told of other `[engine]` settings. A generator of
    another kind than ours follows nobody.
    """
    if not isinstance(generator, Generator):
        yield
        return
    try:
        path = socket_path(begun_with.config)
    except ConfigError as error:
        log.warning("no daemon can reach this runner: %s", error)
        yield
        return
    follower = Follower(generator, begun_with, on_engine, launch.draft)
    link = ControlClient(
        path,
        registration_of(generator, launch, port),
        follower.follow,
        follower.report,
        on_watch=follower.watch,
        live=follower.live,
    )
    link.start()
    try:
        yield
    finally:
        await link.close()


class Follower:
    """Makes a generator, and what else is to know, do what the last plan says."""

    def __init__(
        self,
        generator: Generator,
        begun_with: Plan,
        on_engine: Callable[[Engine], None],
        draft: Path | None = None,
    ) -> None:
        """`draft` is the launch's own draft model."""
        self._generator, self._draft = generator, draft
        self._plan = begun_with
        self._on_engine = on_engine
        self._explained: tuple[float, object] = (-EXPLAIN_EVERY, None)  # when, and at which state of things

    async def follow(self, plan: Plan) -> None:
        """From the next request on. Plugins are loaded on a thread, only if they are others."""
        registry, plan = None, replace(plan, config=with_own_drafter(plan.config, self._draft))
        if needs_new_registry(self._plan, plan):
            registry = await asyncio.to_thread(Registry.load, plan.config)
            for remark in self._generator.registry.remarks:  # on the engine, which stays the same one
                registry.remark(remark)
        before = self._generator.standing
        self._generator.reconfigure(plan.config, registry)
        if plan.config.engine != self._plan.config.engine:
            self._on_engine(plan.config.engine)
        self._plan = plan
        after = self._generator.standing
        if registry or before != after:
            plugins = f", plugins loaded again (generation {plan.generation})" if registry else ""
            log.info("from the next request on: %s %s%s", after.state, after.reason, plugins)

    def report(self) -> Report:
        """How it goes."""
        generator = self._generator
        available = generator.registry.drafters
        return Report(
            totals=generator.totals,
            standing=generator.standing,
            drafters=tuple(name for name in generator.order if name in available),
            problems=tuple(map(str, generator.registry.problems)),
            pool=generator.pool.describe(),
            remembered=remembered_by(generator.engine),
            prompts=long_prompts_read(generator.engine),
            measures=generator.measures,
            answering=generator.answering,
            clients=generator.clients,
        )

    def watch(self, sight: Sight) -> None:
        """Somebody looks at so much from now on."""
        self._generator.live.watch(sight)
        self._explained = (-EXPLAIN_EVERY, None)

    def live(self, most: int) -> list[dict[str, Any]]:
        """What happened since the last call, while somebody looks: at most so many events, and what the controller
        knows now if that changed."""
        events = self._generator.live.take(most)
        at, knew = self._explained
        news = (self._generator.totals, self._generator.rounds)
        if time.monotonic() - at >= EXPLAIN_EVERY and news != knew:
            self._explained = (time.monotonic(), news)
            events.append({"kind": "explained", "at": time.time(), "explained": _brief(self._generator.explain())})
        return events


def _brief(explained: dict[str, Any]) -> dict[str, Any]:
    """Without what a viewer got round by round; of the last ones widths and positions are left."""
    costs = explained["model_of_costs"]
    rounds = [{"width": round["width"], "position": round["position"]} for round in costs["rounds"]]
    return {**explained, "model_of_costs": {**costs, "rounds": rounds}}


def registration_of(generator: Generator, launch: Launch, port: int) -> Registration:
    """How a runner introduces itself."""
    pin, lane = generator.pin, generator.engine.lane
    names = launch.names or (pin.name,)
    return Registration(
        pid=os.getpid(),
        port=port,
        model=names[0],
        started=time.time(),
        digest=pin.manifest_digest or pin.weights[0].digest,
        lane=lane.name,
        parity=lane.parity,
        widths=lane.widths,
        drafters=generator.order,
        aliases=names[1:],
        live=True,
    )
