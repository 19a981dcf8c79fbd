"""From runs to figures: medians over rounds with their spread, and ratios of what was measured side by side."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pilotfish.daemon.lab.bench_systems import CEILING, PLAIN, SPECULATIVE, STOCK, System, on_engine
from pilotfish.daemon.lab.bench_tasks import PASSES
from pilotfish.daemon.lab.benchmark import Run
from pilotfish.daemon.lab.workloads import KINDS

ALL = "all"


@dataclass(frozen=True, slots=True)
class Spread:
    """A median over rounds, with the lowest and the highest."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float | None]) -> Spread | None:
        """None when no round has a value."""
        known = [value for value in values if value is not None]
        return cls(statistics.median(known), min(known), max(known)) if known else None


@dataclass(frozen=True, slots=True)
class Figures:
    """One system on one group of workloads: a single one by name, a kind, or all of them, summed per round.

    Rates are committed tokens per second of the client's wall clock: `decode` from the first token on, `total` from
    sending the request. The `_ratio`s divide by the baseline's figure of the same round, `plain_ratio` by the time
    of the system's own plain decoding, which gave the same ids; above 1 is faster in all of them. `first_ratio` is a
    latency: below 1 is faster.
    """

    system: str
    mode: str
    again: str
    group: str
    tokens: int  # in one round, the median
    decode: Spread | None  # tokens per second
    total: Spread | None  # tokens per second
    seconds: Spread | None  # end to end
    first_token: Spread | None  # seconds, the median within the group
    decode_ratio: Spread | None
    total_ratio: Spread | None
    first_ratio: Spread | None
    plain_ratio: Spread | None
    acceptance: float | None  # accepted of drafted tokens
    compared: int  # answers whose ids were compared with the own plain ones
    equal: int

    def to_json(self) -> dict[str, Any]:
        """JSON-ready."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class _Sum:
    """A group's runs of one system in one round."""

    tokens: int
    decoded: int
    decode_seconds: float
    seconds: float
    first_token: float

    @classmethod
    def of(cls, runs: Sequence[Run]) -> _Sum:
        answers = [run.answer for run in runs]
        return cls(
            tokens=sum(answer.tokens for answer in answers),
            decoded=sum(answer.decoded for answer in answers),
            decode_seconds=sum(answer.decode_seconds for answer in answers),
            seconds=sum(answer.seconds for answer in answers),
            first_token=statistics.median(answer.first_token for answer in answers),
        )

    @property
    def decode(self) -> float | None:
        return _ratio(self.decoded, self.decode_seconds)

    @property
    def total(self) -> float | None:
        return _ratio(self.tokens, self.seconds)


def baseline(systems: Sequence[System]) -> str:
    """What everything is divided by: stock plain where there is one, else pilotfish plain on the first engine."""
    names = [system.name for system in systems if system.name == STOCK or system.part == PLAIN]
    return STOCK if STOCK in names else names[0]


def figures(runs: Sequence[Run], systems: Sequence[System], base: str) -> list[Figures]:
    """All figures: by mode, pass, group and system. Only rounds in which a system answered the whole group count."""
    return [
        found
        for mode in dict.fromkeys(run.mode for run in runs)
        for again in PASSES
        for group in groups(runs)
        for system in systems
        if (found := _figures([r for r in runs if r.mode == mode and r.again == again], group, system, base))
    ]


def groups(runs: Sequence[Run]) -> list[str]:
    """Every workload, every kind that occurs, and all together."""
    kinds = {run.kind for run in runs}
    return [*dict.fromkeys(run.workload for run in runs), *(kind for kind in KINDS if kind in kinds), ALL]


def share_of_ceiling(found: Sequence[Figures], mode: str, again: str, group: str, engine: str) -> float | None:
    """How much of the decoding speed that perfect guesses gain over plain pilotfish gains; None when they gain none."""
    speeds = {
        figure.system: figure.decode_ratio.median
        for figure in found
        if (figure.mode, figure.again, figure.group) == (mode, again, group) and figure.decode_ratio
    }
    plain, own, ceiling = (speeds.get(on_engine(part, engine)) for part in (PLAIN, SPECULATIVE, CEILING))
    if plain is None or own is None or ceiling is None or ceiling <= plain:
        return None
    return (own - plain) / (ceiling - plain)


def _figures(runs: Sequence[Run], group: str, system: System, base: str) -> Figures | None:
    members = [run for run in runs if group in (run.workload, run.kind, ALL)]
    own = [run for run in members if run.system == system.name]
    if not own:
        return None
    mine, theirs = _sums(members, system.name), _sums(members, base)
    plain = _sums(members, system.reference or system.name)

    def against(others: dict[int, _Sum], of: Callable[[_Sum], float | None]) -> Spread | None:
        return Spread.of(_ratio(of(mine[n]), of(others[n])) for n in mine if n in others)

    drafted, accepted = sum(r.answer.drafted for r in own), sum(r.answer.accepted for r in own)
    return Figures(
        system=system.name,
        mode=own[0].mode,
        again=own[0].again,
        group=group,
        tokens=round(statistics.median(one.tokens for one in mine.values())) if mine else 0,
        decode=Spread.of(one.decode for one in mine.values()),
        total=Spread.of(one.total for one in mine.values()),
        seconds=Spread.of(one.seconds for one in mine.values()),
        first_token=Spread.of(one.first_token for one in mine.values()),
        decode_ratio=against(theirs, lambda one: one.decode),
        total_ratio=against(theirs, lambda one: one.total),
        first_ratio=against(theirs, lambda one: one.first_token),
        plain_ratio=against(plain, lambda one: one.total) if system.reference else None,
        acceptance=accepted / drafted if drafted else None,
        compared=sum(run.equal is not None for run in own),
        equal=sum(run.equal is True for run in own),
    )


def _sums(runs: Sequence[Run], system: str) -> dict[int, _Sum]:
    """Round -> sum, of the rounds in which the system answered every workload."""
    workloads = {run.workload for run in runs}
    rounds: dict[int, list[Run]] = {}
    for run in runs:
        if run.system == system:
            rounds.setdefault(run.round, []).append(run)
    return {n: _Sum.of(found) for n, found in rounds.items() if {run.workload for run in found} == workloads}


def _ratio(over: float | None, under: float | None) -> float | None:
    return over / under if over is not None and under is not None and under > 0 else None
