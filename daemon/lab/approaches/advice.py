"""Which approach to take, and why; that none is worth it is one of the answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich import filesize

from pilotfish.daemon.lab.approaches.approach import ApproachResult

WORTH = 1.05  # times the fastest plain decoding: less is within what single answers scatter


@dataclass(frozen=True, slots=True)
class Advice:
    """`take` is an approach's title; "" means: do not speculate."""

    take: str
    reason: str


def advice_on(results: Sequence[ApproachResult], worth: float = WORTH) -> Advice:
    """By the rate that a client sees; an approach that changed an answer is none."""
    measured = [one for one in results if one.rate_with and one.rate_without]
    plain = max((one.rate_without for one in measured if one.rate_without), default=None)
    exact = [one for one in measured if one.exact]
    if plain is None:
        return Advice("", "nothing could be measured")
    drafted = [one for one in exact if one.acceptance is not None]  # else what it gained is scatter
    if not drafted:
        what = "verified a draft" if exact else "gave every answer as plain decoding does"
        return Advice("", f"no approach {what}; plain decoding gives {plain:.1f} tokens/s")
    best = max(drafted, key=lambda one: one.rate_with or 0.0)
    rate = best.rate_with or 0.0
    beside = f"{rate:.1f} tokens/s, the fastest plain decoding gives {plain:.1f}"
    if rate < worth * plain or (best.gain or 0.0) < worth:
        return Advice("", f"{best.title} is the fastest approach with {beside}: {rate / plain:.2f}x is not worth it")
    return Advice(best.title, f"{beside}: {rate / plain:.2f}x{_price(best)}")


def _price(best: ApproachResult) -> str:
    added = best.added_memory
    if added is None:
        return ""
    return f", for {filesize.decimal(added)} more of memory" if added > 0 else ", for no more memory"
