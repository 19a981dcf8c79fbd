"""What plain steps of several sequences take in one forward, beside one alone: for certification."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np

from pilotfish.hooks.types import JointStep
from pilotfish.plugins._cells.context import CellContext
from pilotfish.plugins._cells.joint_check import NoTimeLeft, check_together
from pilotfish.plugins._cells.joint_forward import JointForward, joint_forward

CELLS = 512  # of each sequence: enough for the check that a load makes
DEPTH = 64  # tokens of each, while steps are timed
REPEATS = 4
_SEED = 17


def joint_step(contexts: Sequence[CellContext], *, exact: bool) -> JointStep | None:
    """Time it; None where no two contexts may be in one forward. With `exact` only those whose rows stay the same are.

    Leaves the caches empty. Raises EngineError.
    """
    joint = joint_forward(contexts, len(contexts))
    if joint is None:
        return None
    try:
        joined = _alike(joint, contexts) if exact else len(contexts)
        return _timed(joint, contexts[:joined]) if joined > 1 else None
    finally:
        joint.close()


def _alike(joint: JointForward, contexts: Sequence[CellContext]) -> int:
    try:
        return check_together(joint, contexts, (1,)).get(1, 1)
    except NoTimeLeft as ended:
        return ended.found.get(1, 1)


def _timed(joint: JointForward, contexts: Sequence[CellContext]) -> JointStep:
    ids = np.random.default_rng(_SEED).integers(0, contexts[0].n_vocab, DEPTH + 1, dtype=np.int32)
    token = int(ids[DEPTH])
    for context in contexts:
        context.clear()
        context.feed(ids[:DEPTH])
    blocks = [(context, [token]) for context in contexts]
    turns = [
        (
            _seconds(lambda: contexts[0].step(token), contexts[:1]),
            _seconds(lambda: joint.run(blocks, 1), contexts),
        )
        for _ in range(REPEATS)
    ]
    for context in contexts:
        context.clear()
    alone, together = (min(times) for times in zip(*turns, strict=True))
    return JointStep(len(contexts), together, alone)


def _seconds(forward: Callable[[], None], contexts: Sequence[CellContext]) -> float:
    """That `forward` takes, whose cells are cut again."""
    started = time.perf_counter()
    forward()
    contexts[0].row(0)  # waits for the computation where the device works on its own
    took = time.perf_counter() - started
    for context in contexts:
        context.cut(DEPTH)
    return took
