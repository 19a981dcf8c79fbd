"""Blocks over far ends: medians that a first, slow forward of each width has no part in, and rows that are compared."""

from __future__ import annotations

from pilotfish.daemon.certify.probe_driver import Deadline, Material, ProbeDriver
from pilotfish.daemon.lab.spread.block_costs import block_costs
from tests.fakes.probe import FakeProbe

STEP = 0.06


def costs(**script):
    probe = FakeProbe(**script)
    driver = ProbeDriver(probe, Material(probe.n_vocab, ()), Deadline(60.0))
    return {block.width: block for block in block_costs(driver, (1, 2, 8))}


def test_each_width_costs_its_median_and_its_rows_are_a_step_s():
    found = costs(cost=lambda width: STEP * (1 + 0.1 * (width - 1)))
    assert {width: round(block.seconds / STEP, 3) for width, block in found.items()} == {1: 1.0, 2: 1.1, 8: 1.7}
    assert all(block.equal for block in found.values())


def test_a_width_with_other_rows_is_named():
    found = costs(kernel=lambda width, cells: width == 8)
    assert {width: block.equal for width, block in found.items()} == {1: True, 2: True, 8: False}


def test_what_a_width_takes_at_first_does_not_count():
    seen = []

    def cost(width):
        seen.append(width)
        return STEP if seen.count(width) > 3 else 100.0

    assert {block.seconds for block in costs(cost=cost).values()} == {STEP}
