"""The second look at a lane goes over the edges of a probe's memory, and sends blocks to few experts."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pilotfish.daemon.certify.evidence import Evidence
from pilotfish.daemon.certify.lanes import Measured
from pilotfish.daemon.certify.probe_driver import FEW, GIVEN, Deadline, GivenIds, Material, ProbeDriver
from pilotfish.daemon.lab.fakes.fake_clock import FakeClock
from pilotfish.hooks.types import EngineSetting, Lane
from tests.fakes.probe import FakeProbe, Kernel, one_kernel

LANE = Lane("fake", (1, 2, 4, 8), EngineSetting())


class EdgedProbe(FakeProbe):
    """`by_id` has wide forwards of ids below 2 compute in another way."""

    def __init__(self, kernel: Kernel = one_kernel, *, edges: tuple[int, ...] = (), by_id: bool = False) -> None:
        self.clock = FakeClock()
        super().__init__(kernel, n_ctx=2048, clock=self.clock)
        self.edges, self.experts, self._by_id = edges, by_id, by_id

    def rows(self, tokens: Sequence[int], width: int) -> list[bytes]:
        few = self._by_id and width > 4 and set(tokens) <= {0, 1}
        return [row + b"another expert" * few for row in super().rows(tokens, width)]


def looked_at(probe: EdgedProbe, *given: GivenIds) -> Evidence:
    material = Material(probe.n_vocab, [], given=given)
    driver = ProbeDriver(probe, material, Deadline(10_000.0, probe.clock), 64)
    evidence = Evidence(driver, LANE, Measured(LANE.setting), ())
    evidence.collect()
    return evidence


def test_a_width_that_differs_only_beyond_an_edge_is_out() -> None:
    def beyond(width: int, cells: int) -> object:
        return width == 8 and 700 < cells < 720

    found = looked_at(EdgedProbe(beyond, edges=(694,)))
    assert found.lane.widths == (1, 2, 4)
    assert any("694" in finding for finding in found.findings)


def test_an_edge_beyond_the_context_is_not_looked_at() -> None:
    assert looked_at(EdgedProbe(edges=(4000,))).lane.widths == LANE.widths


@pytest.mark.parametrize(("experts", "widths"), [(True, (1, 2, 4)), (False, LANE.widths)])
def test_a_width_that_differs_where_few_experts_get_all_rows_is_out(experts: bool, widths: tuple[int, ...]) -> None:
    assert looked_at(EdgedProbe(by_id=experts)).lane.widths == widths


def test_ids_for_few_experts_are_two_in_random_order() -> None:
    ids = Material(1000, []).ids(FEW, 200)
    assert set(ids) == {0, 1}
    assert 60 < sum(ids) < 140


def test_a_width_that_differs_only_after_a_regression_probe_is_out() -> None:
    """After these ids alone: a rare difference, which random ids do not find again."""

    class RareProbe(EdgedProbe):
        def rows(self, tokens: Sequence[int], width: int) -> list[bytes]:
            rare = width == 4 and list(tokens[:2]) == [9, 77]
            return [row + b"rare" * rare for row in super().rows(tokens, width)]

    probe = GivenIds((5, 6, 7, 8, 9), (77, 78))
    assert looked_at(RareProbe()).lane.widths == LANE.widths
    alike = looked_at(EdgedProbe(), probe)
    assert alike.lane.widths == LANE.widths
    assert "compared after the 5 ids of a regression probe" in alike.findings
    found = looked_at(RareProbe(), probe)
    assert found.lane.widths == (1, 2, 8)
    assert "width 4 differs after the 5 ids of a regression probe" in found.findings


def test_a_regression_probe_that_does_not_fit_is_told() -> None:
    found = looked_at(EdgedProbe(), GivenIds(tuple(range(2040)), ()))
    assert found.lane.widths == LANE.widths
    assert "a regression probe of 2040 ids does not fit the lane's context" in found.findings


def test_given_ids_come_first_and_random_ones_follow() -> None:
    ids = Material(1000, [1, 2, 3], given=[GivenIds((5, 6), (7,))]).ids(GIVEN, 50)
    assert ids[:3] == [5, 6, 7]
    assert len(set(ids)) > 40
