"""The check of forwards that several sequences share, on contexts whose rows a test decides on."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from pilotfish.plugins._cells.joint_check import NoTimeLeft, check_together

WIDTHS = (1, 2, 4, 8)
Noise = Callable[[int, int], bool]  # (sequences in the forward, width) -> whether its rows come out differently


class FakeSequence:
    """A row is its context's ids, summed up; in a noisy forward something is added."""

    n_vocab = 64
    block = 32

    def __init__(self, sequence: int, cells: int = 512) -> None:
        self.sequence, self.cells = sequence, cells
        self.ids: list[int] = []
        self.rows: list[float] = []

    @property
    def size(self) -> int:
        return len(self.ids)

    def clear(self) -> None:
        self.ids = []

    def cut(self, size: int) -> bool:
        del self.ids[size:]
        return True

    def feed(self, tokens: Sequence[int]) -> None:
        self.ids.extend(map(int, tokens))

    def step(self, token: int) -> None:
        self.take([token], noise=0.0)

    def take(self, tokens: Sequence[int], noise: float) -> None:
        self.rows = []
        for token in tokens:
            self.ids.append(int(token))
            self.rows.append(float(sum(self.ids)) + noise)

    def row(self, i: int) -> np.ndarray:
        return np.array([self.rows[i]], np.float32)


class FakeJoint:
    def __init__(self, capacity: int = 16, noise: Noise = lambda many, width: False) -> None:
        self.capacity, self.noise = capacity, noise
        self.seen: set[tuple[int, int]] = set()

    def run(self, blocks: Sequence[tuple[FakeSequence, Sequence[int]]], width: int) -> None:
        self.seen.add((len(blocks), width))
        for i, (sequence, tokens) in enumerate(blocks):
            last = i == len(blocks) - 1
            sequence.take(tokens, noise=1.0 if last and self.noise(len(blocks), width) else 0.0)


def checked(joint: FakeJoint, slots: int = 4, **options):
    contexts = [FakeSequence(i, **options) for i in range(slots)]
    found = check_together(joint, contexts, WIDTHS)  # type: ignore[arg-type]
    assert all(context.size == 0 for context in contexts)
    return found


def test_equal_rows_are_joined_as_far_as_there_is_room():
    assert checked(FakeJoint()) == {1: 4, 2: 4, 4: 4, 8: 2}


def test_every_number_of_sequences_was_tried():
    joint = FakeJoint()
    checked(joint)
    assert joint.seen == {(2, 1), (3, 1), (4, 1), (2, 2), (3, 2), (4, 2), (2, 4), (3, 4), (4, 4), (2, 8)}


@pytest.mark.parametrize(
    ("noise", "found"),
    [
        (lambda many, width: True, {}),
        (lambda many, width: many > 2, {1: 2, 2: 2, 4: 2, 8: 2}),
        (lambda many, width: width == 2, {1: 4, 4: 4, 8: 2}),
        (lambda many, width: many * width == 8, {1: 4, 2: 3, 8: 2}),
    ],
)
def test_what_differs_in_any_row_is_not_joined(noise, found):
    assert checked(FakeJoint(noise=noise)) == found


def test_there_is_nothing_to_join_without_room():
    assert checked(FakeJoint(capacity=1)) == {}
    assert checked(FakeJoint(), cells=32) == {}


def test_a_short_context_is_checked_as_far_as_it_goes():
    assert checked(FakeJoint(), cells=128) == {1: 4, 2: 4, 4: 4, 8: 2}


def test_more_slots_than_rows_are_checked_as_far_as_there_are_rows():
    assert checked(FakeJoint(capacity=4), slots=6) == {1: 4, 2: 2}


def test_without_time_nothing_is_known():
    contexts = [FakeSequence(i) for i in range(2)]
    with pytest.raises(NoTimeLeft):
        check_together(FakeJoint(), contexts, WIDTHS, budget=-1.0)  # type: ignore[arg-type]
