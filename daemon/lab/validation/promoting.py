"""What follows from a run: which drafters may be used where the config wants them promoted."""

from __future__ import annotations

from collections.abc import Iterator

from pilotfish.daemon.drafters.promotions import Promotions, PromotionSubject
from pilotfish.daemon.lab.parity_subject import Subject
from pilotfish.daemon.lab.receipts.receipt_types import Receipt, RunVerdict


def settle_promotions(promotions: Promotions, subject: Subject, receipt: Receipt, about: str) -> Iterator[str]:
    """Promote each drafter that passed at one of its lengths, take back the others'; a line for each that changed.

    A run outside of any lane says nothing about one. `about` is where the receipt lies. Raises OSError.
    """
    if receipt.settings.unsafe_lane:
        return
    place = PromotionSubject.of(subject.pin, subject.engine.engine, subject.engine.lane)
    for drafter, table in receipt.settings.drafters.items():
        verdicts = [one.verdict for one in receipt.judgements if one.drafter == drafter]
        if RunVerdict.PASSED in verdicts:
            promotions.promote(place, drafter, table, about)
            yield f"{drafter} is promoted for {receipt.pins.model} in this lane"
        elif promotions.withdraw(place, drafter, table):
            yield f"{drafter} was promoted for {receipt.pins.model} in this lane, and is no more"
