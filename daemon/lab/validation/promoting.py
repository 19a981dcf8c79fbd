"""What follows from a run: which drafters may be used where the config wants them promoted."""

from __future__ import annotations

from collections.abc import Iterator

from pilotfish.daemon.drafters.promotions import Promotions, PromotionSubject, Widths
from pilotfish.daemon.lab.parity_subject import Subject
from pilotfish.daemon.lab.receipts.receipt_types import Receipt, RunVerdict, TrialKind


def settle_promotions(promotions: Promotions, subject: Subject, receipt: Receipt, about: str) -> Iterator[str]:
    """Promote each drafter that passed at one of its lengths, take back the others'; a line for each that changed.

    A run outside of any lane says nothing about one. One in a lane that lacks the widths of an earlier promotion says
    nothing about that, unless something in it failed. `about` is where the receipt lies. Raises OSError.
    """
    if receipt.settings.unsafe_lane:
        return
    place = PromotionSubject.of(subject.pin, subject.engine.engine, subject.engine.lane)
    for drafter, table in receipt.settings.drafters.items():
        verdicts = {one.length: one.verdict for one in receipt.judgements if one.drafter == drafter}
        passed = [length for length, verdict in verdicts.items() if verdict is RunVerdict.PASSED]
        if passed:
            widths = [_widths(receipt, drafter, length) for length in passed]
            promotions.promote(place, drafter, table, about, widths)
            said = " or ".join(", ".join(map(str, some)) for some in dict.fromkeys(widths))
            yield f"{drafter} is promoted for {receipt.pins.model} in lanes that have the widths {said}"
        elif _concerned(promotions, place, drafter, receipt) and promotions.withdraw(place, drafter, table):
            yield f"{drafter} was promoted for {receipt.pins.model}, and is no more"


def _widths(receipt: Receipt, drafter: str, length: str) -> Widths:
    """Of the forwards in which the drafter's answers were made."""
    mine = [t for t in receipt.trials if (t.kind, t.drafter, t.length) == (TrialKind.DRAFT, drafter, length)]
    return tuple(sorted({round.width for trial in mine for round in trial.rounds}))


def _concerned(promotions: Promotions, place: PromotionSubject, drafter: str, receipt: Receipt) -> bool:
    failed = receipt.verdict is RunVerdict.FAILED
    return failed or promotions.promoted(place, drafter, receipt.settings.drafters[drafter])
