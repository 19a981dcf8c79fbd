"""Certification on scripted probes: switch points, early stop, budget, choice, rejections and prefixes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pilotfish.daemon.certify.certificate import Certificate, identity_of
from pilotfish.daemon.certify.certifier import Certifier
from pilotfish.daemon.certify.lanes import Site
from pilotfish.daemon.certify.measure import find_switch_points
from pilotfish.daemon.certify.probe_driver import Deadline, Material, ProbeDriver
from pilotfish.daemon.certify.task import CertificationTask
from pilotfish.daemon.lab.fakes.fake_clock import FakeClock
from pilotfish.daemon.lab.fakes.fake_engine import fake_pin
from pilotfish.hooks.errors import EngineError
from pilotfish.hooks.types import EngineOptions, EngineSetting, Parity
from tests.fakes.probe import FakeProbe, one_kernel

ALL = tuple(range(1, 34))
PART = "rows were compared in a part"


def switching(width: int, cells: int) -> object:
    """Like ggml's attention in stock settings: single steps differ from position 256 on."""
    return "split" if width == 1 and cells > 256 else "plain"


def by_weights(width: int, cells: int) -> object:
    """Like a K-quant: another kernel from 8 rows on."""
    return "tiled" if width >= 8 else "plain"


def f16(width: int, cells: int) -> object:
    """Like F16 weights: single steps are a class of their own."""
    return width == 1


class Lab:
    """Runs certifications on a fake clock and remembers the settings that were loaded."""

    def __init__(
        self,
        make: Callable[[EngineSetting, FakeClock], FakeProbe],
        part: Callable[[EngineSetting, FakeClock], FakeProbe] | None = None,
    ) -> None:
        self.clock = FakeClock()
        self.make = make
        self.part = part
        self.parts: list[FakeProbe] = []
        self.loaded: list[str] = []
        self.probes: list[FakeProbe] = []

    def certify(
        self, budget: float = 10_000.0, parity: Parity = Parity.LANE, engine: str = "llama", **options: object
    ) -> Certificate:
        asked = EngineOptions(batch_size=64, **{"n_ctx": 1024, **options})  # type: ignore[arg-type]  # of any type
        self.n_ctx = asked.n_ctx
        identity = identity_of(fake_pin(), {engine: "build"}, asked, parity)
        task = CertificationTask(
            identity,
            "fake:latest",
            asked,
            (engine,),
            text="some natural text" * 9,
            open_part=self._open_part if self.part else None,
            part=PART,
        )
        return Certifier(task, self._open, budget=budget, deadline=Deadline(budget, self.clock)).run()

    def _open(self, setting: EngineSetting, deadline: Deadline) -> FakeProbe:
        self.loaded.append(setting.title)
        self.clock.advance(1.0)
        probe = self.make(setting, self.clock)
        probe.n_ctx = self.n_ctx
        self.probes.append(probe)
        return probe

    def _open_part(self, setting: EngineSetting, deadline: Deadline) -> FakeProbe:
        assert self.part is not None
        probe = self.part(setting, self.clock)
        probe.n_ctx = self.n_ctx
        self.parts.append(probe)
        return probe


def uniform(setting: EngineSetting, clock: FakeClock) -> FakeProbe:
    mixed = setting.cache_type_k != setting.cache_type_v
    return FakeProbe(one_kernel if mixed else switching, setting=setting.title, clock=clock)


def test_the_first_setting_with_one_class_ends_the_search() -> None:
    lab = Lab(uniform)
    certificate = lab.certify()
    assert certificate.lane.widths == ALL
    assert (certificate.lane.setting.cache_type_k, certificate.lane.setting.cache_type_v) == ("bf16", "f16")
    assert certificate.lane.parity == "lane"
    assert certificate.lane.exact_cache
    assert certificate.lane.max_context == 1024
    assert certificate.complete
    assert len(set(lab.loaded)) == 2  # stock and the winner, which is loaded again for more evidence
    assert all(probe.closed for probe in lab.probes)


def test_every_width_and_regime_gets_512_compared_rows() -> None:
    certificate = Lab(uniform).certify()
    assert [(regime["start"], regime["end"]) for regime in certificate.regimes] == [(0, 256), (256, 1024)]
    for regime in certificate.regimes:
        assert list(regime["rows"]) == [str(width) for width in ALL[1:]]
        assert min(regime["rows"].values()) >= 512


@pytest.mark.parametrize("at", [100, 256, 513])
def test_a_switch_is_found_where_it_is(at: int) -> None:
    probe = FakeProbe(lambda width, cells: width == 1 and cells > at)
    driver = ProbeDriver(probe, Material(probe.n_vocab, []), Deadline(1e9))
    assert find_switch_points(driver, 1024, 1e9) == (at,)


def test_without_a_switch_none_is_found() -> None:
    probe = FakeProbe(f16)
    assert find_switch_points(ProbeDriver(probe, Material(probe.n_vocab, []), Deadline(1e9)), 1024, 1e9) == ()


def test_where_weights_decide_their_variants_are_tried_and_the_faster_lane_wins() -> None:
    def make(setting: EngineSetting, clock: FakeClock) -> FakeProbe:
        untiled = setting.environment == (("GGML_CPU_TILED_MM", "0"),)
        kernel = one_kernel if untiled else by_weights
        return FakeProbe(kernel, setting=setting.title, clock=clock, prefill=0.01 if untiled else 0.001)

    lab = Lab(make)
    certificate = lab.certify()
    assert certificate.lane.widths == (1, 2, 3, 4, 5, 6, 7)  # all widths would make prompts ten times slower
    assert certificate.lane.setting.environment == ()
    lab = Lab(lambda setting, clock: FakeProbe(make(setting, clock)._kernel, setting=setting.title, clock=clock))
    assert lab.certify().lane.setting.environment == (("GGML_CPU_TILED_MM", "0"),)


def test_cells_that_remember_their_block_limit_the_reuse_of_prefixes() -> None:
    def make(setting: EngineSetting, clock: FakeClock) -> FakeProbe:
        return FakeProbe(by_weights, setting=setting.title, clock=clock, sticky=True)

    lane = Lab(make).certify().lane
    assert lane.widths == (1, 2, 3, 4, 5, 6, 7)
    assert not lane.exact_cache
    assert lane.prefill_block == 64
    assert "cells depend on the block that wrote them" in lane.reason


def test_a_padded_lane_is_taken_where_width_two_costs_no_more_than_one() -> None:
    def make(cost: Callable[[int], float]) -> Lab:
        return Lab(lambda setting, clock: FakeProbe(f16, setting=setting.title, clock=clock, cost=cost))

    cheap = make(lambda width: 0.01).certify()
    assert cheap.lane.widths == ALL[1:]
    assert cheap.lane.parity == "lane"
    dear = make(lambda width: 0.01 * width).certify()
    assert dear.lane.widths == (1,)
    assert dear.lane.parity == "none"
    assert "plain steps would take 2.00x stock's time" in dear.lane.reason


def test_widths_that_never_agree_leave_a_plain_lane_that_says_why() -> None:
    lab = Lab(lambda setting, clock: FakeProbe(lambda width, cells: width, setting=setting.title, clock=clock))
    certificate = lab.certify()
    assert certificate.lane.widths == (1,)
    assert certificate.lane.parity == "none"
    assert "only single steps are alike" in certificate.summary()


def test_a_cache_that_cannot_be_cut_is_not_tried_any_further() -> None:
    lab = Lab(lambda setting, clock: FakeProbe(clock=clock, obstacle="its memory cannot cut its tail"))
    certificate = lab.certify()
    assert len(lab.loaded) == 1
    assert certificate.lane.widths == (1,)
    assert certificate.lane.reason == "its memory cannot cut its tail"


def test_rows_that_see_later_tokens_of_their_block_are_found_out() -> None:
    lab = Lab(lambda setting, clock: FakeProbe(setting=setting.title, clock=clock, peeks=True))
    assert lab.certify().lane.widths == (1,)


def test_a_setting_that_is_refused_is_passed_over() -> None:
    def make(setting: EngineSetting, clock: FakeClock) -> FakeProbe:
        if setting.cache_type_k == "bf16":
            raise EngineError("no bf16 here")
        return uniform(setting, clock)

    certificate = Lab(make).certify()
    assert certificate.lane.setting.cache_type_k == "q8_0"
    assert any("no bf16 here" in variant["trouble"] for variant in certificate.variants)


def test_stock_settings_that_do_not_load_are_an_error() -> None:
    def refuse(setting: EngineSetting, clock: FakeClock) -> FakeProbe:
        raise EngineError("the file is gone")

    with pytest.raises(EngineError, match="the file is gone"):
        Lab(refuse).certify()


@pytest.mark.parametrize("budget", [1.5, 8.0, 15.0, 20.0, 25.0, 60.0])
def test_out_of_time_the_lane_covers_only_what_was_compared(budget: float) -> None:
    lab = Lab(uniform)
    certificate = lab.certify(budget)
    assert lab.clock.now <= budget + 1.5
    assert not certificate.complete
    compared = certificate.lane.max_context or 0
    reached = [before + width for probe in lab.probes for width, before in probe.forwards if width > 1]
    assert certificate.lane.widths == (1,) or compared <= max(reached)
    for regime in certificate.regimes if certificate.lane.max_width > 1 else ():
        assert regime["start"] >= compared or min(regime["rows"].values()) > 0


def test_a_longer_budget_proves_a_longer_context() -> None:
    reached = [Lab(uniform).certify(budget, n_ctx=16384).lane.max_context or 0 for budget in (20.0, 900.0)]
    assert 0 < reached[0] < reached[1] == 16384


def test_a_switch_that_only_long_contexts_show_ends_the_lane_before_it() -> None:
    def make(setting: EngineSetting, clock: FakeClock) -> FakeProbe:
        return FakeProbe(lambda width, cells: width if cells > 700 else 0, setting=setting.title, clock=clock)

    lane = Lab(make).certify().lane
    assert lane.widths == ALL
    assert 250 <= (lane.max_context or 0) <= 700


def test_stock_parity_keeps_stock_settings_and_ends_at_the_switch() -> None:
    lane = Lab(uniform).certify(parity=Parity.STOCK).lane
    assert lane.setting == EngineSetting("f16", "f16", None)
    assert lane.parity == "stock"
    assert lane.widths == ALL
    assert lane.max_context is not None
    assert lane.max_context <= 256


@pytest.mark.parametrize("asked", [{}, {"flash_attention": False}, {"flash_attention": True}])
def test_another_engine_is_tried_without_flash_attention_and_never_promises_stocks_ids(asked: dict[str, bool]) -> None:
    """Not even where its single steps give the rows of its own stock settings: those are not plain Ollama's."""
    lab = Lab(lambda setting, clock: FakeProbe(one_kernel, setting="the same", clock=clock))
    certificate = lab.certify(engine="ik", **asked)
    assert certificate.lane.setting == EngineSetting("f16", "f16", False, engine="ik")
    assert (certificate.lane.parity, certificate.lane.widths) == ("lane", ALL)
    assert all(name.startswith("ik: ") for name in lab.loaded)
    assert {width for width, _, _ in certificate.costs} > {1}


def test_what_the_launch_sets_is_kept() -> None:
    lab = Lab(lambda setting, clock: FakeProbe(setting=setting.title, clock=clock))
    lane = lab.certify(cache_type_k="q8_0", cache_type_v="q8_0").lane
    assert (lane.setting.cache_type_k, lane.setting.cache_type_v) == ("q8_0", "q8_0")
    assert lab.loaded
    assert all("K q8_0, V q8_0" in name for name in lab.loaded)
    lab = Lab(lambda setting, clock: FakeProbe(setting=setting.title, clock=clock))
    lab.certify(flash_attention=False)
    assert lab.loaded
    assert all(name.startswith("no flash") for name in lab.loaded)


def test_costs_are_those_of_the_lane() -> None:
    certificate = Lab(uniform).certify()
    costs = {(width, position): seconds for width, position, seconds in certificate.costs}
    assert costs[1, 64] == pytest.approx(0.006)
    assert costs[8, 264] == pytest.approx(0.013)
    assert certificate.plain_ratio == 1.0


def test_a_longer_piece_of_a_material_begins_like_a_shorter_one() -> None:
    text = list(range(50))
    for number in range(4):
        long = Material(1000, text).ids(number, 700)
        grown = Material(1000, text)
        assert grown.ids(number, 30) == long[:30]
        assert grown.ids(number, 700) == long


def test_a_sites_prefix_is_always_written_by_the_same_blocks() -> None:
    probe = FakeProbe(lambda width, cells: (width, cells), sticky=True)
    driver = ProbeDriver(probe, Material(1000, []), Deadline(1e9), block=64)
    site = Site(0, 150, 8)
    first = driver.walk(site, 1)
    for other in (Site(0, 200, 8), Site(0, 70, 8), Site(2, 150, 8)):
        driver.walk(other, 3)
        assert driver.walk(site, 1) == first


def test_a_slow_model_is_certified_for_fewer_widths() -> None:
    lab = Lab(
        lambda setting, clock: FakeProbe(setting=setting.title, clock=clock, cost=lambda width: 0.05 + 0.04 * width)
    )
    certificate = lab.certify(240.0)
    assert certificate.conclusive
    assert certificate.lane.widths in (ALL[:16], ALL[:8])
    assert "only widths up to" in certificate.findings[0]


def test_a_plain_lane_for_lack_of_time_is_no_conclusion() -> None:
    assert not Lab(uniform).certify(3.0).conclusive
    never = Lab(lambda setting, clock: FakeProbe(lambda width, cells: width, setting=setting.title, clock=clock))
    assert never.certify().conclusive


def slow(setting: EngineSetting, clock: FakeClock) -> FakeProbe:
    """Like a large model: hardly anything can be compared in a minute."""
    mixed = setting.cache_type_k != setting.cache_type_v
    kernel = one_kernel if mixed else switching
    return FakeProbe(kernel, setting=setting.title, clock=clock, cost=lambda width: 0.05 + 0.02 * width, prefill=0.01)


def test_a_part_of_a_large_model_tells_what_the_whole_has_no_time_for() -> None:
    assert Lab(slow).certify(60.0).lane.widths != ALL
    lab = Lab(slow, uniform)
    certificate = lab.certify(60.0)
    assert certificate.lane.widths == ALL
    assert certificate.lane.max_context == 1024
    assert certificate.switch_points == (256,)
    assert PART in certificate.findings
    assert all(probe.closed for probe in (*lab.probes, *lab.parts))
    costs = {(width, position): seconds for width, position, seconds in certificate.costs}
    assert costs[8, 64] == pytest.approx(0.21)  # the whole model's


def test_where_the_whole_model_shows_less_than_its_part_it_is_compared_itself() -> None:
    lab = Lab(lambda setting, clock: FakeProbe(by_weights, setting=setting.title, clock=clock), uniform)
    certificate = lab.certify()
    assert certificate.lane.widths == (1, 2, 3, 4, 5, 6, 7)
    assert PART not in certificate.findings
    assert any("a part of the model shows less than all of it" in finding for finding in certificate.findings)


def test_single_steps_that_part_from_blocks_in_a_later_row_of_the_whole_are_seen() -> None:
    """The first row of a block may agree by chance."""

    def kernel(width: int, cells: int) -> object:
        return width == 1 and cells in (67, 267)

    lab = Lab(lambda setting, clock: FakeProbe(kernel, setting=setting.title, clock=clock), uniform)
    assert any("shows less" in finding for finding in lab.certify().findings)


def test_a_part_that_does_not_load_leaves_the_whole_model_to_be_compared() -> None:
    def refuse(setting: EngineSetting, clock: FakeClock) -> FakeProbe:
        raise EngineError("no blocks")

    certificate = Lab(uniform, refuse).certify()
    assert certificate.lane.widths == ALL
    assert certificate.complete
    assert PART not in certificate.findings
