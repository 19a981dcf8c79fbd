"""What daemon and runner tell each other, parsed once: registrations, plans and reports."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pilotfish.daemon.config.reader import parse, to_table
from pilotfish.daemon.config.types import Config
from pilotfish.daemon.control.stamps import stamp_from
from pilotfish.daemon.core.measures import Measures
from pilotfish.daemon.core.totals import Standing, Totals
from pilotfish.daemon.registry.plugin_sources import examine
from pilotfish.daemon.registry.plugin_trouble import describe, problem_of
from pilotfish.hooks.errors import ConfigError, RequestError
from pilotfish.hooks.types import ConversationTotals

_UNSAID = ConversationTotals(obstacle="its runner does not say")


@dataclass(frozen=True, slots=True)
class Registration:
    """A runner introduces itself. `(pid, started)` tells one process from every other; `started` is Unix time."""

    pid: int
    port: int
    model: str  # as Ollama shows it
    started: float
    digest: str = ""  # of the model's manifest or weights
    lane: str = ""
    parity: str = ""
    widths: tuple[int, ...] = (1,)
    drafters: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()  # other models with the same weights, which Ollama lets one runner serve
    live: bool = False  # whether it tells of its requests while somebody looks

    @property
    def names(self) -> tuple[str, ...]:
        """Every model whose settings count."""
        return (self.model, *self.aliases)

    @property
    def process(self) -> tuple[int, float]:
        """What stays the same when a runner comes back on a new connection."""
        return self.pid, self.started

    def to_json(self) -> dict[str, Any]:
        """JSON-ready."""
        return asdict(self)

    @classmethod
    def from_json(cls, table: Any) -> Registration:
        """Raises RequestError for anything but `to_json`'s result."""
        try:
            return cls(
                pid=int(table["pid"]),
                port=int(table["port"]),
                model=str(table["model"]),
                started=float(table["started"]),
                digest=str(table.get("digest", "")),
                lane=str(table.get("lane", "")),
                parity=str(table.get("parity", "")),
                widths=tuple(int(width) for width in table.get("widths", (1,))),
                drafters=tuple(str(name) for name in table.get("drafters", ())),
                aliases=tuple(str(name) for name in table.get("aliases", ())),
                live=bool(table.get("live", False)),
            )
        except _MALFORMED as error:
            raise RequestError(f"not a registration ({error!r}); is the runner of this version?") from error


@dataclass(frozen=True, slots=True)
class Plan:
    """What is in force for one model. Two plans that are equal ask for nothing new.

    `plugins` is a fingerprint of the plugin folders' files; `generation` counts its changes since the daemon
    started. A daemon that starts again counts from the beginning, so runners compare the fingerprint.
    """

    config: Config
    plugins: str = ""
    generation: int = 0

    def to_json(self) -> dict[str, Any]:
        """JSON-ready, but for what a plugin's own table may hold."""
        return {
            "config": to_table(self.config),
            "path": str(self.config.path) if self.config.path else None,
            "plugins": {"fingerprint": self.plugins, "generation": self.generation},
        }

    @classmethod
    def from_json(cls, table: Any) -> Plan:
        """Raises RequestError for anything but `to_json`'s result."""
        try:
            path = table["path"]
            config = parse(table["config"], Path(path) if path else None)
            plugins = table["plugins"]
            return cls(config, str(plugins["fingerprint"]), int(plugins["generation"]))
        except (*_MALFORMED, ConfigError) as error:
            raise RequestError(f"not a plan ({error}); is the daemon of this version?") from error


@dataclass(frozen=True, slots=True)
class Report:
    """How a runner is doing: sums since its model was loaded, whether it drafts, and what is wrong with its plugins.

    `pool` is `DrafterPool.describe()`: by drafter its `state` and what is to be said `about` it. `remembered` are the
    conversations beside its slot, `prompts` says where long ones are read. `measures` move while answers are written,
    of which there are `answering` now. `clients` are the totals of each program that asked.
    """

    totals: Totals = field(default_factory=Totals)
    standing: Standing = field(default_factory=Standing)
    drafters: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    pool: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    remembered: ConversationTotals = _UNSAID
    prompts: str = ""
    measures: Measures = field(default_factory=Measures)
    answering: int = 0
    clients: Mapping[str, Totals] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "totals": self.totals.to_json(),
            "state": self.standing.state,
            "reason": self.standing.reason,
            "drafters": list(self.drafters),
            "problems": list(self.problems),
            "pool": {name: dict(about) for name, about in self.pool.items()},
            "conversations": asdict(self.remembered),
            "prompts": self.prompts,
            "measures": self.measures.to_json(),
            "answering": self.answering,
            "clients": {name: totals.to_json() for name, totals in self.clients.items()},
        }

    @classmethod
    def from_json(cls, table: Any) -> Report:
        """Raises RequestError for anything but `to_json`'s result."""
        try:
            standing = Standing(str(table["state"]), str(table["reason"]))
            drafters, problems = (tuple(str(item) for item in table[key]) for key in ("drafters", "problems"))
            pool = {
                str(name): {"state": str(about["state"]), "about": str(about["about"])}
                for name, about in table.get("pool", {}).items()
            }
            remembered = _remembered(table["conversations"]) if "conversations" in table else _UNSAID
            return cls(
                totals=Totals.from_json(table["totals"]),
                standing=standing,
                drafters=drafters,
                problems=problems,
                pool=pool,
                remembered=remembered,
                prompts=str(table.get("prompts", "")),
                measures=Measures.from_json(table["measures"]) if "measures" in table else Measures(),
                answering=int(table.get("answering", 0)),
                clients={str(name): Totals.from_json(found) for name, found in table.get("clients", {}).items()},
            )
        except _MALFORMED as error:
            raise RequestError(f"not a report ({error!r}); is the runner of this version?") from error


def _remembered(table: Mapping[str, Any]) -> ConversationTotals:
    counts = {name: int(table.get(name, 0)) for name in asdict(ConversationTotals()) if name != "obstacle"}
    return ConversationTotals(**counts, obstacle=str(table["obstacle"]))


def needs_new_registry(old: Plan, new: Plan) -> bool:
    """Whether a runner has to load plugins again for `new`: other files, folders or drafters' tables.

    The verifier's table does not count: it was used when the model was loaded.
    """

    def built_from(plan: Plan) -> tuple[object, ...]:
        return plan.plugins, plan.config.plugins, plan.config.drafters.tables

    return built_from(old) != built_from(new)


def plugin_fingerprint(folders: Sequence[Path]) -> str:
    """Another string whenever a plugin file came, went or changed, or whether it is trusted did. Raises nothing."""
    seen = [
        (str(path), describe(found) if isinstance(found, Exception) else stamp_from(found))
        for path, found in examine(folders)
    ]
    text = repr(sorted(seen, key=lambda entry: entry[0]))
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:16]


def plugin_problems(folders: Sequence[Path]) -> tuple[str, ...]:
    """What is to be said of plugin folders and files that cannot be loaded, as every runner says it. Raises nothing."""
    refused = ((str(path), found) for path, found in examine(folders) if isinstance(found, Exception))
    return tuple(str(problem_of(path, path, error)) for path, error in refused)


_MALFORMED = (KeyError, TypeError, ValueError, AttributeError, OverflowError)
