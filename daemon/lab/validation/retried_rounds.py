"""An answer in which every round is verified, given up and done again: what is given up must leave nothing behind."""

from __future__ import annotations

from collections.abc import Callable

from pilotfish.daemon.core.generation import GenerationRequest
from pilotfish.daemon.core.target_session import open_target
from pilotfish.daemon.lab.receipts.receipt_types import Arrival, Ids, RoundRecord, RoundTimes, TrialTimes
from pilotfish.daemon.lab.validation.trial_asking import MeasuredAnswer
from pilotfish.hooks.errors import ProtocolViolation
from pilotfish.hooks.history import RunningDigest
from pilotfish.hooks.protocols import Rows, TargetEngine, TargetSession


def retried(
    engine: TargetEngine, request: GenerationRequest, plain: Ids, k: int, clock: Callable[[], float]
) -> MeasuredAnswer:
    """Answer `request` with proposals of `k` ids of `plain`, each round once for nothing and once in earnest.

    Raises ProtocolViolation where a round that was given up changed what the target acknowledges.
    """
    started = clock()
    session = open_target(engine, request)
    try:
        while session.prefill() > 0:
            pass
        rounds, arrivals = _rounds(engine, session, request, plain, k, clock, started)
    finally:
        session.close()
    ids = tuple(token for round in rounds for token in round.committed or ())
    stop = "eos" if ids and ids[-1] in engine.eog else "limit"
    times = TrialTimes(arrivals[0].at, clock() - started, tuple(arrivals))
    return MeasuredAnswer(ids, stop, times, tuple(rounds))


def _rounds(
    engine: TargetEngine,
    session: TargetSession,
    request: GenerationRequest,
    plain: Ids,
    k: int,
    clock: Callable[[], float],
    started: float,
) -> tuple[list[RoundRecord], list[Arrival]]:
    rounds: list[RoundRecord] = []
    arrivals: list[Arrival] = []
    history, n = RunningDigest(request.prompt), 0
    while n < len(plain):
        before = history.ack()
        proposal = plain[n : n + min(k, len(plain) - n - 1, engine.lane.widest_at(before.position) - 1)]
        session.verify(proposal)
        if (ack := session.rollback()) != before:
            raise ProtocolViolation(f"after a round was given up the target acknowledged {ack}, not {before}")
        began = clock()
        rows = session.verify(proposal)
        verified = clock()
        picks = _picks(rows, proposal, engine.eog)
        if session.commit(picks) != history.commit(picks):
            raise ProtocolViolation(f"the round after one that was given up committed another history at {before}")
        ended = clock()
        rounds.append(_record(engine, before.position, proposal, picks, verified - began, ended - began))
        arrivals.append(Arrival(ended - started, len(picks)))
        n += len(picks)
        if picks[-1] in engine.eog:
            break
    return rounds, arrivals


def _picks(rows: Rows, proposal: Ids, ends: frozenset[int]) -> Ids:
    picks: list[int] = []
    for i in range(1 + len(proposal)):
        picks.append(rows.pick(i))
        if i == len(proposal) or picks[-1] != proposal[i] or picks[-1] in ends:
            break
    return tuple(picks)


def _record(
    engine: TargetEngine, position: int, proposal: Ids, picks: Ids, verified: float, total: float
) -> RoundRecord:
    accepted = sum(1 for pick, proposed in zip(picks, proposal, strict=False) if pick == proposed)
    return RoundRecord(
        position=position,
        width=engine.lane.pad(1 + len(proposal)),
        drafter="oracle" if proposal else "",
        n_proposed=len(proposal),
        accepted=accepted,
        n_committed=len(picks),
        times=RoundTimes(0.0, 0.0, verified, None, total - verified, total),
        proposed=proposal,
        committed=picks,
    )
