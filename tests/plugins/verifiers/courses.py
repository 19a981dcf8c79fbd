"""Answers with the exact bits of every row that a token was drawn from."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from pilotfish.daemon.lab.conformance.verifier_checks import GREEDY, ready
from pilotfish.hooks.types import SamplingParams

if TYPE_CHECKING:
    from pilotfish.plugins._cells.engine import CellEngine
    from pilotfish.plugins._cells.session import CellSession

Course = list[tuple[int, bytes]]  # tokens, and digests of their rows


def course(
    engine: CellEngine,
    prompt: Sequence[int],
    n: int,
    draft: Sequence[int] = (),
    *,
    seed: int = 0,
    sampling: SamplingParams = GREEDY,
    cache_prompt: bool = False,
) -> tuple[Course, int]:
    """`n` tokens after `prompt`, and how many of its cells were kept.

    With `draft` every round verifies as many of its tokens as chance has it, and wrong ones after them.
    """
    random = np.random.default_rng(seed)
    done: Course = []
    with ready(engine, prompt, sampling, cache_prompt=cache_prompt) as session:
        cached = session.cached
        while len(done) < n:
            room = min(engine.lane.max_width, n - len(done)) - 1
            proposals = partly_right(draft[len(done) :], room, engine.n_vocab, random) if draft else []
            done += committed(session, proposals)
    return done, cached


def partly_right(right: Sequence[int], room: int, n_vocab: int, random: np.random.Generator) -> list[int]:
    """Up to `room` proposals, of which the first ones are right."""
    k = int(random.integers(0, room + 1))
    proposals = list(right[: int(random.integers(0, k + 1))])
    return [*proposals, *map(int, random.integers(0, n_vocab, k - len(proposals)))]


def committed(session: CellSession, proposals: Sequence[int]) -> Course:
    """One round: what it commits."""
    rows = session.verify(proposals)
    found: Course = []
    for i in range(len(rows)):
        digest = digest_of(session, i)
        found.append((rows.pick(i), digest))
        if found[i][0] not in proposals[i : i + 1]:
            break
    session.commit([token for token, _ in found])
    return found


def is_the_same_beside_another(engine: CellEngine, prompt: Sequence[int], other: Sequence[int]) -> bool:
    """Whether an answer with drafts has its own rows while a session on `other` waits in another slot."""
    plain, _ = course(engine, prompt, 30)
    with ready(engine, other, cache_prompt=False):
        return course(engine, prompt, 30, ids(plain), seed=1)[0] == plain


def digest_of(session: CellSession, i: int) -> bytes:
    return hashlib.blake2b(session.slot.context.row(i).tobytes(), digest_size=16).digest()


def ids(done: Course) -> list[int]:
    return [token for token, _ in done]
