"""Which engine a certification takes, and why: two scripted ones, on a fake clock."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pilotfish.daemon.certify.candidates import candidates, prompt_block, stock_setting
from pilotfish.daemon.certify.certificate import Certificate, identity_of
from pilotfish.daemon.certify.certifier import SURVEY_SHARE, Certifier
from pilotfish.daemon.certify.probe_driver import Deadline
from pilotfish.daemon.certify.suitability import Suitability
from pilotfish.daemon.certify.task import CertificationTask
from pilotfish.daemon.lab.fakes.fake_clock import FakeClock
from pilotfish.daemon.lab.fakes.fake_engine import fake_pin
from pilotfish.hooks.errors import BrokenModel, EngineError
from pilotfish.hooks.types import EngineOptions, EngineSetting, TargetPin, WeightPin
from pilotfish.manifests.remembered import SETTLED_SECONDS
from tests.fakes.probe import FakeProbe, one_kernel

BOTH = ("llama", "ik")
BUILDS = {"llama": "build of llama", "ik": "build of ik"}
Make = Callable[[EngineSetting, FakeClock], FakeProbe]


def by_weights(width: int, cells: int) -> object:
    """Like libllama's K-quants: another kernel from 4 rows on."""
    return width >= 4


def up_to_31(width: int, cells: int) -> object:
    """Like ik_llama.cpp without flash attention."""
    return width > 31


class Scene:
    """Certifies with scripted engines; `loads` are the titles of what was loaded, in order."""

    def __init__(self, **engines: Make) -> None:
        self.engines = engines
        self.clock = FakeClock()
        self.load_seconds = 1.0
        self.loads: list[str] = []
        self.evidence_began = 0.0  # when the last of them began

    def certify(
        self,
        budget: float = 10_000.0,
        known: Suitability | None = None,
        keep_stock: bool = True,
        n_ctx: int = 1024,
        batch_size: int = 64,
        slots: int = 1,
        prompts_apart: bool = True,
    ) -> Certificate:
        options = EngineOptions(n_ctx=n_ctx, batch_size=batch_size, slots=slots)
        identity = identity_of(fake_pin(), BUILDS, options)
        task = CertificationTask(
            identity,
            "fake:latest",
            options,
            tuple(self.engines),
            text="some natural text" * 9,
            known=known,
            keep_stock=keep_stock,
            prompts_apart=prompts_apart,
        )
        return Certifier(task, self._open, budget=budget, deadline=Deadline(budget, self.clock)).run()

    def _open(self, setting: EngineSetting, deadline: Deadline) -> FakeProbe:
        self.loads.append(setting.title)
        self.evidence_began = self.clock.now
        self.clock.advance(self.load_seconds)
        return self.engines[setting.engine](setting, self.clock)


def engine(kernel: Callable[[int, int], object] = one_kernel, step: float = 1.0, **facts: Any) -> Make:
    """An engine whose forwards take `step` times what the fake's usually do; its rows are its settings' own."""

    def make(setting: EngineSetting, clock: FakeClock) -> FakeProbe:
        def cost(width: int) -> float:
            return step * (0.005 + 0.001 * width)

        return FakeProbe(kernel, setting=setting.title, clock=clock, cost=cost, **facts)

    return make


def variant(certificate: Certificate, engine: str) -> dict:
    """The last of the engine's settings in the table."""
    return [dict(variant) for variant in certificate.variants if variant["engine"] == engine][-1]


@pytest.mark.parametrize(("ours", "theirs", "winner"), [(1.0, 0.8, "ik"), (1.0, 1.4, "llama")])
def test_the_engine_with_the_lower_expected_time_wins(ours: float, theirs: float, winner: str) -> None:
    scene = Scene(llama=engine(step=ours), ik=engine(up_to_31, step=theirs))
    certificate = scene.certify()
    assert certificate.lane.setting.engine == winner
    assert certificate.lane.max_width == (31 if winner == "ik" else 33)
    assert certificate.lane.parity == "lane"
    assert certificate.reference == "llama"
    assert [variant["engine"] for variant in certificate.variants if variant["chosen"]] == [winner]


def test_wider_exact_blocks_win_over_equal_steps() -> None:
    assert Scene(llama=engine(by_weights), ik=engine(up_to_31)).certify().lane.setting.engine == "ik"


def test_each_engine_reads_prompts_in_blocks_of_its_own() -> None:
    """The lane keeps to them where cells depend on the block that wrote them."""
    blocks = {
        winner: Scene(
            llama=engine(up_to_31, step=1.0 if winner == "llama" else 2.0, sticky=True),
            ik=engine(up_to_31, step=1.5, sticky=True),
        ).certify(batch_size=512)
        for winner in BOTH
    }
    assert {name: made.lane.setting.engine for name, made in blocks.items()} == {name: name for name in BOTH}
    assert {name: made.lane.prefill_block for name, made in blocks.items()} == {"llama": 512, "ik": 128}


def test_slow_prompts_lose_against_equal_steps() -> None:
    certificate = Scene(llama=engine(), ik=engine(up_to_31, step=0.95, prefill=0.003)).certify()
    assert certificate.lane.setting.engine == "llama"
    assert variant(certificate, "ik")["prompt_ratio"] == 3.0


@pytest.mark.parametrize("keep_stock", [True, False])
@pytest.mark.parametrize(("slots", "winner"), [(1, "ik"), (4, "llama")])
def test_steps_that_share_a_forward_count_where_several_requests_are_answered_at_once(
    slots: int, winner: str, keep_stock: bool
) -> None:
    """libllama's of four take two steps together; the other engine's are quicker, and take turns."""
    scene = Scene(llama=engine(joint=2.0), ik=engine(up_to_31, step=0.8))
    certificate = scene.certify(slots=slots, keep_stock=keep_stock)
    assert certificate.lane.setting.engine == winner
    assert variant(certificate, "llama")["company"] == (0.5 if slots == 4 else 1.0)
    assert variant(certificate, "ik")["lanes"][0]["company_ratio"] == pytest.approx(1.6 if slots == 4 else 0.8, abs=0.1)


def test_without_stocks_engine_requests_that_take_turns_are_compared_with_such() -> None:
    assert Scene(ik=engine(up_to_31)).certify(slots=4).lane.setting.engine == "ik"


def test_where_joined_rows_change_a_lane_takes_turns_and_loses_against_stock() -> None:
    """Stock joins its own in any case."""
    certificate = Scene(llama=engine(joint=2.0, joins=False)).certify(slots=4)
    assert certificate.lane.widths == (1,)
    assert "4 requests at once 2.00x" in certificate.lane.reason
    assert Scene(llama=engine(joint=2.0, joins=False)).certify().lane.max_width == 33


@pytest.mark.parametrize(("apart", "winner"), [(True, "llama"), (False, "ik")])
def test_prompts_are_priced_as_they_would_be_read(apart: bool, winner: str) -> None:
    """Long ones with stock's cache types where the engine can and the config lets it, half of all prompt tokens."""

    def llama(setting: EngineSetting, clock: FakeClock) -> FakeProbe:
        stock = setting.flash_attention is None
        return engine(by_weights, prefill=0.001 if stock else 0.0014, prompts_apart=not stock)(setting, clock)

    certificate = Scene(llama=llama, ik=engine(by_weights, step=0.95, prefill=0.0014)).certify(prompts_apart=apart)
    assert certificate.lane.setting.engine == winner
    mixed = next(v for v in certificate.variants if v["setting"] == "flash, K bf16, V f16")
    assert mixed["prompt_ratio"] == pytest.approx((1.4 + 1.03) / 2 if apart else 1.4, abs=0.01)
    untiled = next(v for v in certificate.variants if "TILED" in v["setting"] and "K bf16" in v["setting"])
    assert untiled["prompt_ratio"] == pytest.approx(1.4, abs=0.01)  # stock's time says nothing about such kernels


def test_a_context_without_room_for_a_whole_prompt_block_has_no_long_prompts() -> None:
    scene = Scene(llama=engine(prompts_apart=True, prefill=0.002))
    assert variant(scene.certify(batch_size=1024), "llama")["long_prompts"] == "in the lane"
    assert variant(scene.certify(batch_size=64), "llama")["long_prompts"] == "with stock's cache types"


def test_a_perfect_setting_of_one_engine_does_not_keep_the_other_from_being_looked_at() -> None:
    scene = Scene(llama=engine(), ik=engine(up_to_31, step=0.5))
    assert scene.certify().lane.setting.engine == "ik"
    assert scene.loads.count("flash, K bf16, V f16") == 1  # and no other setting of libllama's
    assert [title for title in scene.loads if not title.startswith("ik")] == scene.loads[:2]


def test_every_engine_gets_a_look_before_any_gets_a_second_one() -> None:
    scene = Scene(llama=engine(by_weights), ik=engine(by_weights))
    scene.certify()
    assert [title.startswith("ik: ") for title in scene.loads[:4]] == [False, False, True, False]


@pytest.mark.parametrize("slow", BOTH)
def test_a_slow_engine_does_not_take_the_time_of_the_other(slow: str) -> None:
    makes = {name: engine(up_to_31, step=30.0 if name == slow else 1.0) for name in BOTH}
    makes["llama"] = engine(up_to_31) if slow == "ik" else makes["llama"]
    scene = Scene(**makes)
    certificate = scene.certify(60.0)
    assert scene.clock.now <= 60.0 + 1.5
    assert {variant["engine"] for variant in certificate.variants} == set(BOTH)
    in_time = variant(certificate, slow)["trouble"] != "time ran out while it was measured"
    assert in_time or any(f"before {slow} could be measured" in finding for finding in certificate.findings)
    assert certificate.unmeasured == (() if in_time else (slow,))
    assert certificate.lane.setting.engine != slow


@pytest.mark.parametrize("pace", [2.0, 3.0, 4.0])
def test_on_a_machine_that_other_work_slows_down_fewer_widths_are_compared_on_every_engine(pace: float) -> None:
    """What forwards take when they are timed is less than what they take a moment later."""

    def busy(kernel: Callable[[int, int], object], step: float) -> Make:
        def make(setting: EngineSetting, clock: FakeClock) -> FakeProbe:
            forwards = iter(range(10**9))

            def cost(width: int) -> float:
                return step * (0.005 + 0.001 * width) * (pace if next(forwards) > 100 else 1.0)

            return FakeProbe(kernel, setting=setting.title, clock=clock, cost=cost)

        return make

    certificate = Scene(llama=busy(one_kernel, 1.0), ik=busy(up_to_31, 0.8)).certify(40.0)
    assert certificate.unmeasured == ()
    assert certificate.lane.setting.engine == "ik"
    assert certificate.lane.max_width >= 2


@pytest.mark.parametrize("budget", [20.0, 40.0, 60.0, 120.0])
def test_the_survey_stays_within_its_share(budget: float) -> None:
    scene = Scene(llama=engine(by_weights), ik=engine(up_to_31, step=0.8))
    certificate = scene.certify(budget)
    assert scene.clock.now <= budget + 1.5
    assert scene.loads[-1] == certificate.lane.setting.title  # loaded again: there was time for evidence
    assert scene.evidence_began <= SURVEY_SHARE * budget + 1.5


def test_rows_that_are_not_libllamas_exclude_an_engine_and_the_certificate_says_so() -> None:
    certificate = Scene(llama=engine(), ik=engine(up_to_31, step=0.5, apart=1.0)).certify()
    assert certificate.lane.setting.engine == "llama"
    found = variant(certificate, "ik")
    assert found["divergence"] > 0.05
    assert "its rows are not libllama's" in found["trouble"]


@pytest.mark.parametrize("keep_stock", [True, False])
def test_a_small_divergence_is_written_down(keep_stock: bool) -> None:
    certificate = Scene(llama=engine(), ik=engine(up_to_31, step=0.5, apart=0.1)).certify(keep_stock=keep_stock)
    assert certificate.lane.setting.engine == "ik"
    assert variant(certificate, "ik")["divergence"] == pytest.approx(0.1**2 / 2, rel=0.3)
    assert variant(certificate, "llama")["divergence"] is None


def test_an_engine_that_cuts_text_otherwise_is_not_offered() -> None:
    certificate = Scene(llama=engine(), ik=engine(up_to_31, step=0.5, shift=1)).certify()
    assert certificate.lane.setting.engine == "llama"
    assert "cuts text into other tokens" in variant(certificate, "ik")["trouble"]


def test_another_vocabulary_is_another_model() -> None:
    certificate = Scene(llama=engine(), ik=engine(up_to_31, step=0.5, n_vocab=999)).certify()
    assert certificate.lane.setting.engine == "llama"
    assert "vocabulary has 999 tokens" in variant(certificate, "ik")["trouble"]


def test_without_room_for_libllamas_rows_no_other_engine_is_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("pilotfish.daemon.certify.divergence.tempfile.TemporaryFile", full)
    certificate = Scene(llama=engine(), ik=engine(up_to_31, step=0.5)).certify()
    assert certificate.lane.setting.engine == "llama"
    assert "No space left on device" in variant(certificate, "ik")["trouble"]


def refuse(kind: type[Exception]) -> Make:
    def make(setting: EngineSetting, clock: FakeClock) -> FakeProbe:
        raise kind("no such architecture")

    return make


@pytest.mark.parametrize("kind", [BrokenModel, EngineError])
def test_an_engine_that_does_not_load_the_model_is_no_candidate(kind: type[Exception]) -> None:
    certificate = Scene(llama=engine(), ik=refuse(kind)).certify()
    assert certificate.lane.setting.engine == "llama"
    assert "no such architecture" in variant(certificate, "ik")["trouble"]


def test_a_model_that_only_the_other_engine_loads_is_measured_by_that_one_alone() -> None:
    certificate = Scene(llama=refuse(BrokenModel), ik=engine(up_to_31)).certify()
    assert (certificate.lane.setting.engine, certificate.reference) == ("ik", "ik")
    assert variant(certificate, "ik")["divergence"] is None
    assert "no such architecture" in variant(certificate, "llama")["trouble"]


def test_a_model_that_no_engine_loads_is_an_error() -> None:
    with pytest.raises(BrokenModel, match="no such architecture"):
        Scene(llama=refuse(BrokenModel), ik=refuse(EngineError)).certify()


def test_where_libllama_cannot_cut_its_cache_another_engine_may_speculate() -> None:
    """As with sliding windows; what libllama's steps cost is still the measure."""
    obstacle = "its sliding window forgets cells that a rollback would need"
    scene = Scene(llama=engine(obstacle=obstacle), ik=engine(up_to_31, step=0.9))
    certificate = scene.certify()
    assert certificate.lane.setting.engine == "ik"
    assert certificate.plain_ratio == pytest.approx(0.9, abs=0.05)
    assert variant(certificate, "llama")["trouble"] == obstacle
    assert len([title for title in scene.loads if not title.startswith("ik")]) == 1


def test_one_engine_alone_is_compared_with_itself_and_stands_in_the_table_once() -> None:
    certificate = Scene(ik=engine(up_to_31)).certify()
    assert (certificate.reference, certificate.lane.setting.engine) == ("ik", "ik")
    settings = [variant["setting"] for variant in certificate.variants]
    assert settings == ["ik: no flash, K f16, V f16", "ik: flash, K f16, V f16"]


def test_loading_that_takes_long_counts_against_an_engine() -> None:
    def slow_to_load(setting: EngineSetting, clock: FakeClock) -> FakeProbe:
        clock.advance(60.0)
        return engine(step=0.97)(setting, clock)

    assert Scene(llama=engine(), ik=engine(step=0.9)).certify().lane.setting.engine == "ik"
    certificate = Scene(llama=engine(), ik=slow_to_load).certify()
    assert certificate.lane.setting.engine == "llama"
    assert variant(certificate, "ik")["load_seconds"] == pytest.approx(61.0)


@pytest.fixture
def pin(tmp_path: Path) -> TargetPin:
    path = tmp_path / "weights.gguf"
    path.write_bytes(b"weights")
    time.sleep(2 * SETTLED_SECONDS)  # before, nothing is remembered about it
    return replace(fake_pin(), weights=(WeightPin("sha256:ab", path, 7),))


def test_what_a_library_refuses_is_not_loaded_again_until_its_build_changes(pin: TargetPin, tmp_path: Path) -> None:
    options = EngineOptions(state_dir=tmp_path / "state")
    known = Suitability(pin, BUILDS, options)
    Scene(llama=engine(), ik=refuse(BrokenModel)).certify(known=known)
    scene = Scene(llama=engine(), ik=engine(up_to_31, step=0.5))
    certificate = scene.certify(known=Suitability(pin, BUILDS, options))
    assert not any(title.startswith("ik: ") for title in scene.loads)
    assert variant(certificate, "ik")["trouble"] == "no such architecture"
    newer = Suitability(pin, {**BUILDS, "ik": "another build"}, options)
    assert Scene(llama=engine(), ik=engine(up_to_31, step=0.5)).certify(known=newer).lane.setting.engine == "ik"


def test_the_divergence_is_measured_once_per_model_and_build(pin: TargetPin, tmp_path: Path) -> None:
    options = EngineOptions(state_dir=tmp_path / "state")
    far = engine(up_to_31, step=0.5, apart=1.0)
    Scene(llama=engine(), ik=far).certify(known=Suitability(pin, BUILDS, options))
    scene = Scene(llama=engine(), ik=far)
    certificate = scene.certify(known=Suitability(pin, BUILDS, options))
    assert not any(title.startswith("ik: ") for title in scene.loads)
    assert variant(certificate, "ik")["divergence"] > 0.05
    for engine_of in BUILDS:
        newer = Suitability(pin, {**BUILDS, engine_of: "another build"}, options)
        assert newer.divergence("ik") is None


def test_a_lack_of_memory_is_not_remembered(pin: TargetPin, tmp_path: Path) -> None:
    options = EngineOptions(state_dir=tmp_path / "state")
    Scene(llama=engine(), ik=refuse(EngineError)).certify(known=Suitability(pin, BUILDS, options))
    assert Suitability(pin, BUILDS, options).refusal("ik") == ""


def test_mlx_has_settings_of_its_own_which_keep_to_the_launch() -> None:
    plain, products, small = candidates(EngineOptions(), "mlx", weights_first=True)
    assert plain == stock_setting(EngineOptions(), "mlx")
    assert (plain.flash_attention, products.flash_attention) == (True, False)
    assert (small.cache_type_k, small.cache_type_v) == ("q8_0", "q8_0")
    asked = candidates(EngineOptions(cache_type_k="q4_0", cache_type_v="q4_0"), "mlx", weights_first=True)
    assert {setting.cache_type_k for setting in asked} == {"q4_0"}
    assert prompt_block(EngineOptions(batch_size=512), "mlx") == 512
