"""The oracles: a drafter that knows the plain answer, and is wrong exactly where a case says.

With proposals of k ids, a block in which the i-th one is wrong commits i ids, and the next block begins behind them: so
an oracle that is wrong at every i-th id is wrong at the same place of every block.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pilotfish.daemon.core.generation import GenerationRequest
from pilotfish.daemon.lab.receipts.receipt_types import Ids, RoundRecord, TrialRecord
from pilotfish.daemon.lab.validation.trial_asking import MeasuredAnswer

FULL = "full acceptance"
FIRST, MIDDLE, LAST = "rejection first", "rejection in the middle", "rejection last"
END = "end token inside a block"
BUDGET = "budget inside a block"
ABORT = "abort and retry"
CASES = (FULL, FIRST, MIDDLE, LAST, END, BUDGET, ABORT)

BIASES = (2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0, 16.0, 20.0)  # of the end token, until an answer ends early
EARLY = 3  # ids that an answer must have for its end to be inside a block

Plainly = Callable[[GenerationRequest], MeasuredAnswer]


@dataclass(frozen=True, slots=True)
class PreparedCase:
    """What is asked, the ids that must come, and the oracle's table; why not, where a case cannot be brought about."""

    request: GenerationRequest
    expected: Ids = ()
    table: dict[str, Any] | None = None
    about: str = ""


def wrong_every(case: str, k: int) -> int:
    """At which ids the oracle is wrong: every so many; 0 for none."""
    return {FIRST: 1, MIDDLE: k // 2 + 1, LAST: k}.get(case, 0)


def prepared(
    case: str, request: GenerationRequest, reference: TrialRecord, k: int, eos: int | None, plainly: Plainly
) -> PreparedCase:
    """The request and table of `case` for proposals of `k` ids; `reference` is the plain answer to `request`."""
    plain = reference.output_ids or ()
    if k < 1:
        return PreparedCase(request, about="the lane holds no proposal")
    if case == END:
        if reference.terminated and len(plain) >= EARLY:
            return _ending(request, plain, k)
        return _made_to_end(request, k, eos, plainly)
    if case == BUDGET:
        return _budget_inside(request, plain, k)
    if case in (MIDDLE, LAST) and wrong_every(case, k) == 1:
        return PreparedCase(request, about="proposals of one id have only a first one")
    return PreparedCase(request, plain, {"tokens": list(plain), "wrong_every": wrong_every(case, k)})


def reached(case: str, rounds: Sequence[RoundRecord], k: int) -> bool:
    """Whether the case came up in at least one round."""
    full = [round for round in rounds if round.n_proposed == k]
    where = {FIRST: 0, MIDDLE: k // 2, LAST: k - 1}
    if case in where:
        return any(round.accepted == where[case] for round in full)
    if case == END:
        return any(round.n_proposed > 0 and round.accepted == round.n_committed for round in rounds[-1:])
    if case == BUDGET:
        return any(0 < round.n_proposed < k for round in rounds[-1:])
    return any(round.accepted == k for round in full)


def _ending(request: GenerationRequest, ids: Ids, k: int) -> PreparedCase:
    """The answer and what an oracle that missed its end would go on with, so that the end is inside the last block."""
    return PreparedCase(request, ids, {"tokens": [*ids, *ids[:1] * k]})


def _made_to_end(request: GenerationRequest, k: int, eos: int | None, plainly: Plainly) -> PreparedCase:
    """An answer that ends since its end token was made likelier."""
    biases = () if eos is None else tuple(((eos, bias),) for bias in BIASES)
    for bias in biases:
        biased = replace(request, sampling=replace(request.sampling, logit_bias=bias))
        answer = plainly(biased)
        if answer.stop == "eos":
            if len(answer.ids) >= EARLY:
                return _ending(biased, answer.ids, k)
            break
    return PreparedCase(request, about="no answer ended within its budget and not at once, with any bias of its end")


def _budget_inside(request: GenerationRequest, plain: Ids, k: int) -> PreparedCase:
    """A budget that ends in the middle of a block of ids that are all right."""
    fits = (n for n in range(len(plain) - 1, 1, -1) if 2 <= n % (k + 1) <= k)
    if (budget := next(fits, None)) is None:
        return PreparedCase(request, about=f"an answer of {len(plain)} ids is too short for a block of {k} to be cut")
    return PreparedCase(replace(request, n_predict=budget), plain[:budget], {"tokens": list(plain)})
