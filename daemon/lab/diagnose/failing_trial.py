"""A trial of a receipt whose ids were other than they should be, as a reproduction."""

from __future__ import annotations

from pilotfish.daemon.certify.reproductions import ForwardShape, PastRound, Reproduction
from pilotfish.daemon.lab.receipts.receipt_types import Receipt, RoundRecord, TrialRecord
from pilotfish.hooks.errors import UsageError


def reproduction_of(receipt: Receipt, trial: TrialRecord) -> Reproduction:
    """The prefix before the first id that differs; the plain forward, and the one that gave that id.

    Raises UsageError where no id differs, or the receipt does not have the ids.
    """
    prefix, at = trial.failing_prefix, trial.differs_at
    if at is None:
        raise UsageError(f"{trial.name}: no id of it differs ({trial.verdict}); diagnose takes a trial that failed")
    if prefix is None:
        raise UsageError(f"{trial.name}: its ids were left out of the receipt; repeat the run without --redact")
    settings, weights = receipt.settings, tuple(file.digest for file in receipt.pins.weights)
    before, failing = _around(trial, len(prefix))
    start = failing.position if failing else len(prefix)
    following = (failing.proposed or ())[len(prefix) - start :] if failing else ()
    rounds = [PastRound(round.width, round.proposed or (), round.n_committed) for round in before]
    if len(prefix) > start and failing:
        rounds.append(PastRound(failing.width, failing.proposed or (), len(prefix) - start))
    setting, widths = settings.lane.setting, settings.lane.widths
    width = failing.width if failing else widths[-1]
    if width == widths[0]:  # a plain step, after cells that a wider forward wrote
        width, following = max((round.width for round in before), default=widths[-1]), ()
    return Reproduction(
        model=receipt.pins.model,
        prefix=prefix,
        plain=ForwardShape(setting, widths[0]),
        other=ForwardShape(setting, width),
        following=following,
        prompt=trial.n_prompt,
        rounds=tuple(rounds),
        lane=widths,
        weights=weights,
        n_ctx=settings.n_ctx,
        threads=settings.threads,
        batch_size=settings.batch_size,
        gpu_layers=settings.gpu_layers,
    )


def _around(trial: TrialRecord, size: int) -> tuple[list[RoundRecord], RoundRecord | None]:
    """The rounds before `size` ids were committed, and the one in which the next id was."""
    before = [round for round in trial.rounds if round.position + round.n_committed <= size]
    return before, trial.rounds[len(before)] if len(before) < len(trial.rounds) else None
