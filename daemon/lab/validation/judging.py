"""Whether a drafter may be promoted: every comparison of ids equal, and its thresholds reached.

A comparison or an answer that failed anywhere in the run, an oracle's included, is the lane's fault as much as a
drafter's: then no drafter passes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pilotfish.daemon.config.types import Promotion
from pilotfish.daemon.lab.receipts.receipt_figures import GroupFigures, figures_of
from pilotfish.daemon.lab.receipts.receipt_types import (
    DrafterJudgement,
    RunVerdict,
    TrialKind,
    TrialRecord,
    TrialVerdict,
)

BAD = {
    TrialVerdict.DIFFERENT: "ids differed in this run",
    TrialVerdict.FAILED: "an answer of this run ended with an error",
}


def judged(
    trials: Sequence[TrialRecord],
    thresholds: Promotion,
    *,
    unsafe_lane: bool = False,
    stopped: bool = False,
) -> tuple[RunVerdict, tuple[DrafterJudgement, ...]]:
    """The run's verdict, and one for each drafter at each length. None passes outside of any lane, or in a part of a
    run that was stopped.
    """
    verdicts = {trial.verdict for trial in trials if trial.kind is not TrialKind.CONTROL}
    exact = verdicts.isdisjoint(BAD)
    against = [why for bad, why in BAD.items() if bad in verdicts]
    against += ["outside of any lane nothing is promoted"] if unsafe_lane else []
    against += ["the run was stopped"] if stopped else []
    plain = [trial for trial in trials if trial.kind is TrialKind.PLAIN]
    drafts = [trial for trial in trials if trial.kind is TrialKind.DRAFT]
    found = []
    for key in dict.fromkeys((trial.drafter, trial.length) for trial in drafts):
        mine = [trial for trial in drafts if (trial.drafter, trial.length) == key]
        asked = {trial.prompt for trial in mine}
        beside = [trial for trial in plain if trial.prompt in asked]
        found.append(_judgement(figures_of(mine), figures_of(beside) if beside else None, thresholds, against))
        if not exact:
            found[-1] = replace(found[-1], verdict=RunVerdict.FAILED)
    if not exact:
        return RunVerdict.FAILED, tuple(found)
    passed = any(judgement.verdict is RunVerdict.PASSED for judgement in found)
    return RunVerdict.PASSED if passed else RunVerdict.NOT_PROMOTED, tuple(found)


def _judgement(
    mine: GroupFigures, plain: GroupFigures | None, thresholds: Promotion, against: Sequence[str]
) -> DrafterJudgement:
    """`against` speaks against it whatever its figures are."""
    plain_rate = plain.rate if plain else None
    ratio = mine.rate / plain_rate if mine.rate and plain_rate else None
    first, plain_first = (group.first_token.seconds if group and group.first_token else None for group in (mine, plain))
    reasons = [*against, *_missed(ratio, first, plain_first, thresholds)]
    return DrafterJudgement(
        drafter=mine.drafter,
        length=mine.length,
        verdict=RunVerdict.NOT_PROMOTED if reasons else RunVerdict.PASSED,
        reasons=tuple(reasons),
        answers=mine.trials,
        different=mine.different,
        rate=mine.rate,
        plain_rate=plain_rate,
        ratio=ratio,
        first_token_p95=first,
        plain_first_token_p95=plain_first,
    )


def _missed(ratio: float | None, first: float | None, plain_first: float | None, thresholds: Promotion) -> list[str]:
    if ratio is None or first is None or plain_first is None:
        return ["no answer of it can be timed beside a plain one"]
    missed = []
    if ratio < 1 + thresholds.min_gain:
        missed.append(f"{ratio:.2f}x the plain rate, {1 + thresholds.min_gain:.2f}x is asked for")
    if first > plain_first * (1 + thresholds.max_first_token_loss):
        most = 1 + thresholds.max_first_token_loss
        missed.append(f"p95 of the first token is {first / plain_first:.2f}x the plain one, {most:.2f}x is allowed")
    return missed
