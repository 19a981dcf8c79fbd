"""What a receipt's trials come to: rates, latencies, acceptance and where a round's time goes.

Rates are committed ids, the end token included, per second of the client's clock. Acceptance is accepted draft ids over
proposed ones: corrections and bonus ids are delivered, not accepted. p95 is by nearest rank: with few samples it is the
slowest of them, so that the sample size stands beside it. Diverged answers enter nothing here but counts.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pilotfish.daemon.lab.receipts.receipt_types import (
    Receipt,
    RoundRecord,
    RoundTimes,
    TrialKind,
    TrialRecord,
    TrialVerdict,
)

FEW = 20  # samples under which a p95 says little


@dataclass(frozen=True, slots=True)
class Percentile:
    """A nearest-rank percentile of `n` samples, in seconds."""

    seconds: float
    n: int

    @property
    def few(self) -> bool:
        """Whether it is just the slowest sample."""
        return self.n < FEW


@dataclass(frozen=True, slots=True)
class MeanRound:
    """The mean of so many rounds: ids committed, and seconds; `transport` is None where no drafter was waited for."""

    rounds: int
    committed: float
    times: RoundTimes


@dataclass(frozen=True, slots=True)
class GroupFigures:
    """Trials of one drafter at one length, or of plain decoding. Counts cover all of them, rates the sound ones."""

    drafter: str
    length: str
    trials: int
    different: int
    proposed: int
    accepted: int
    fallbacks: int  # rounds that were plain steps
    rounds: int
    rate: float | None  # median, end to end
    decode_rate: float | None  # median, from the first arrival on
    first_token: Percentile | None
    mean_round: MeanRound | None

    @property
    def title(self) -> str:
        """For people."""
        return f"{self.drafter}, {self.length}" if self.drafter else "plain"

    @property
    def acceptance(self) -> float | None:
        """Accepted over proposed; None where nothing was proposed."""
        return self.accepted / self.proposed if self.proposed else None


def groups_of(receipt: Receipt) -> list[GroupFigures]:
    """Plain decoding first, then every drafter at every length, in the order of the run."""
    kinds = (TrialKind.PLAIN, TrialKind.DRAFT)
    trials = [trial for trial in receipt.trials if trial.kind in kinds]
    keys = dict.fromkeys((trial.drafter, trial.length) for trial in trials)
    return [
        figures_of([t for t in trials if (t.drafter, t.length) == key])
        for key in sorted(keys, key=lambda key: bool(key[0]))
    ]


def figures_of(trials: Sequence[TrialRecord]) -> GroupFigures:
    """Of trials with one drafter at one length."""
    sound = [trial for trial in trials if is_sound(trial)]
    rounds = [round for trial in sound for round in trial.rounds]
    return GroupFigures(
        drafter=trials[0].drafter,
        length=trials[0].length,
        trials=len(trials),
        different=sum(trial.verdict is TrialVerdict.DIFFERENT for trial in trials),
        proposed=sum(trial.proposed for trial in trials),
        accepted=sum(trial.accepted for trial in trials),
        fallbacks=sum(round.fallback for trial in trials for round in trial.rounds),
        rounds=sum(len(trial.rounds) for trial in trials),
        rate=median(rate_of(trial) for trial in sound),
        decode_rate=median(decode_rate_of(trial) for trial in sound),
        first_token=p95([trial.times.first_token for trial in sound]),
        mean_round=mean_round(rounds),
    )


def is_sound(trial: TrialRecord) -> bool:
    """Whether its rates count: it has ids, and they are the ones that they must be."""
    return trial.verdict in (TrialVerdict.EQUAL, TrialVerdict.REFERENCE) and trial.tokens > 0


def rate_of(trial: TrialRecord) -> float | None:
    """Ids per second from the request to the end."""
    return trial.tokens / trial.times.total if trial.times.total > 0 else None


def decode_rate_of(trial: TrialRecord) -> float | None:
    """Ids per second after the first arrival; None where all of them came at once."""
    seconds = trial.times.total - trial.times.first_token
    first = trial.times.arrivals[0].tokens if trial.times.arrivals else 1
    later = trial.tokens - first
    return later / seconds if seconds > 0 and later > 0 else None


def median(values: Iterable[float | None]) -> float | None:
    """Of those that are known; None without any."""
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def p95(samples: Sequence[float]) -> Percentile | None:
    """By nearest rank; None without samples."""
    if not samples:
        return None
    return Percentile(sorted(samples)[math.ceil(0.95 * len(samples)) - 1], len(samples))


def mean_round(rounds: Sequence[RoundRecord]) -> MeanRound | None:
    """None without rounds."""
    if not rounds:
        return None
    times, n = [round.times for round in rounds], len(rounds)
    moved = [time.transport for time in times if time.transport is not None]
    mean = RoundTimes(
        drafting=sum(time.drafting for time in times) / n,
        bridging=sum(time.bridging for time in times) / n,
        verification=sum(time.verification for time in times) / n,
        transport=sum(moved) / n if moved else None,
        overhead=sum(time.overhead for time in times) / n,
        total=sum(time.total for time in times) / n,
    )
    return MeanRound(n, sum(round.n_committed for round in rounds) / n, mean)


def acceptance_by_position(trials: Sequence[TrialRecord]) -> list[tuple[int, int]]:
    """(accepted, proposed) of the first, second, ... id of all proposals."""
    rounds = [round for trial in trials for round in trial.rounds if not round.fallback]
    longest = max((round.n_proposed for round in rounds), default=0)
    return [
        (sum(round.accepted > i for round in rounds), sum(round.n_proposed > i for round in rounds))
        for i in range(longest)
    ]


def plain_step(receipt: Receipt) -> float | None:
    """Mean seconds of a plain decoding round; None where there was none."""
    plain = [trial for trial in receipt.trials if trial.kind is TrialKind.PLAIN and is_sound(trial)]
    found = mean_round([round for trial in plain for round in trial.rounds])
    return found.times.total if found else None


def bursts(trial: TrialRecord) -> list[int]:
    """How many ids each arrival brought that brought more than one."""
    return [arrival.tokens for arrival in trial.times.arrivals if arrival.tokens > 1]
