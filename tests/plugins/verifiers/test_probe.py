"""The raw probe of the llama verifier, and a certification of the real model through it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from pilotfish.daemon.certify.candidates import candidates
from pilotfish.daemon.certify.certificate import Certificate, identity_of
from pilotfish.daemon.certify.certifier import Certifier
from pilotfish.daemon.certify.divergence import StockRows
from pilotfish.daemon.certify.lanes import MAX_WIDTH, NEAR, Site, classes
from pilotfish.daemon.certify.probe_driver import Deadline, Material, ProbeDriver
from pilotfish.daemon.certify.suitability import BOUND
from pilotfish.daemon.certify.task import CertificationTask
from pilotfish.hooks.errors import BrokenModel
from pilotfish.hooks.protocols import CertifiableVerifier, Probe, ReadsLogits, ReadsPromptsApart, StepsTogether
from pilotfish.hooks.sample_text import SAMPLE
from pilotfish.hooks.types import EngineOptions, EngineSetting, TargetPin
from pilotfish.plugins._cells.context import DIGEST_BYTES
from tests.engines import VERIFIERS

pytestmark = pytest.mark.model

EXACT = EngineSetting("bf16", "f16")
EXACT_ON = {"llama": EXACT, "ik": EngineSetting("f16", "f16", flash_attention=False, engine="ik")}
STOCK = EngineSetting("f16", "f16")

OpenProbe = Callable[..., Probe]


@pytest.fixture
def probe_of(smollm2_path: Path, pin_of: Callable[[Path], TargetPin]) -> Iterator[OpenProbe]:
    opened: list[Probe] = []

    def open_probe(
        setting: EngineSetting, path: Path = smollm2_path, threads: int = 2, verifier: str = "llama", n_ctx: int = 512
    ) -> Probe:
        options = EngineOptions(n_ctx=n_ctx, threads=threads)
        opened.append(VERIFIERS[verifier]().probe(pin_of(path), setting, MAX_WIDTH, options))
        return opened[-1]

    yield open_probe
    for probe in opened:
        probe.close()


def test_the_verifier_can_be_certified_and_knows_its_build_without_loading(probe_of: OpenProbe, verifier: str) -> None:
    built = VERIFIERS[verifier]()
    assert isinstance(built, CertifiableVerifier)
    assert built.fingerprint(None) == probe_of(EXACT_ON[verifier], verifier=verifier).engine.fingerprint


def test_a_file_that_is_no_model_is_refused(tmp_path: Path, probe_of: OpenProbe, verifier: str) -> None:
    path = tmp_path / "broken.gguf"
    path.write_bytes(b"GGUF")
    with pytest.raises(BrokenModel, match=r"broken\.gguf"):
        probe_of(EXACT_ON[verifier], path, verifier=verifier)


def test_digests_tell_equal_rows_from_others_and_cuts_take_back(probe_of: OpenProbe, verifier: str) -> None:
    probe = probe_of(EXACT_ON[verifier], verifier=verifier)
    ids = probe.encode("The quick brown fox jumps over the lazy dog")
    probe.feed(ids[:4])
    first = probe.rows(ids[4:7], 3)
    assert len(set(first)) == 3
    assert probe.cut(4)
    assert probe.rows(ids[4:7], 3) == first
    assert probe.cut(4)
    assert probe.rows(ids[4:6], 4)[:2] == first[:2]  # padded
    assert probe.cut(4)
    assert probe.rows([ids[5], ids[4]], 2) != first[:2]


def test_the_exact_setting_is_one_class_past_256_cells_and_stock_is_not(probe_of: OpenProbe) -> None:
    site = Site(0, 264, 8)

    def seen(setting: EngineSetting) -> tuple[tuple[int, ...], ...]:
        probe = probe_of(setting)
        driver = ProbeDriver(probe, Material(probe.n_vocab, []), Deadline(200))
        return classes({width: driver.walk(site, width) for width in (1, 2, 8)})

    assert seen(EXACT) == ((1, 2, 8),)
    assert seen(STOCK) == ((1,), (2, 8))  # the negative control: a comparison that could not fail proves nothing


def test_logits_are_the_rows_that_the_digests_are_of(probe_of: OpenProbe, verifier: str) -> None:
    probe = probe_of(EXACT_ON[verifier], verifier=verifier)
    assert isinstance(probe, ReadsLogits)
    ids = probe.encode("The quick brown fox jumps over the lazy dog")
    digests = probe.rows(ids[:4], 4)
    assert probe.cut(0)
    rows = np.frombuffer(probe.logits(ids[:4], 4), np.float32).reshape(4, probe.n_vocab)
    assert [hashlib.blake2b(row.tobytes(), digest_size=DIGEST_BYTES).digest() for row in rows] == digests
    assert len(np.unique(rows[0])) > 1000


def test_steps_share_a_forward_where_no_row_changes_and_stocks_in_any_case(probe_of: OpenProbe) -> None:
    """What is timed stands apart from the probe's own cells; the other engine's requests take turns."""
    lane, stock, other = probe_of(EXACT), probe_of(STOCK), probe_of(EXACT_ON["ik"], threads=1, verifier="ik")
    lane.feed([1, 2, 3])
    before = lane.rows([4], 1)
    assert lane.cut(3)
    assert isinstance(lane, StepsTogether)
    step = lane.together(3, exact=True)
    assert step is not None
    assert step.joined == 3
    assert step.alone > 0
    assert step.seconds > 0
    assert lane.rows([4], 1) == before
    assert isinstance(stock, StepsTogether)
    assert stock.together(3, exact=True) is None
    always = stock.together(3, exact=False)
    assert always is not None
    assert always.joined == 3
    assert isinstance(other, StepsTogether)
    assert other.together(3, exact=False) is None


def test_only_lanes_whose_long_prompts_are_read_apart_say_so(probe_of: OpenProbe) -> None:
    for setting, apart in ((EXACT, True), (STOCK, False), (EXACT_ON["ik"], False)):
        probe = probe_of(setting, verifier=setting.engine)
        assert isinstance(probe, ReadsPromptsApart)
        assert probe.prompts_apart is apart


def test_the_rows_of_the_other_engine_are_near_libllamas_and_those_of_other_weights_are_not(
    probe_of: OpenProbe, quantized: Callable[[str], Path]
) -> None:
    def driver(setting: EngineSetting, name: str) -> ProbeDriver:
        probe = probe_of(setting, quantized(name), verifier=setting.engine)
        return ProbeDriver(probe, Material(probe.n_vocab, probe.encode(SAMPLE)), Deadline(200))

    stock = StockRows(driver(STOCK, "Q4_K_M"), 200)
    assert stock.complete
    assert 0 < stock.divergence_of(driver(EXACT_ON["ik"], "Q4_K_M")) < BOUND / 2
    assert stock.divergence_of(driver(STOCK, "Q4_K_M")) == 0
    assert stock.divergence_of(driver(STOCK, "Q4_0")) > BOUND
    stock.close()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> tuple[int, ...]:
    """The widths of certifications that take seconds; every width takes a minute, and the command tries them all."""
    few = (1, 2, 8)
    monkeypatch.setattr("pilotfish.daemon.certify.survey.ALL_WIDTHS", few)
    monkeypatch.setattr("pilotfish.daemon.certify.pricing.COST_WIDTHS", few)
    monkeypatch.setattr("pilotfish.daemon.certify.evidence.TARGET_ROWS", 24)
    monkeypatch.setattr("pilotfish.daemon.certify.evidence.SITE_ROWS", 24)
    for name, value in (("REPEATS", 1), ("PREFILL", 64), ("PREFILL_REPEATS", 1)):
        monkeypatch.setattr(f"pilotfish.daemon.certify.measure.{name}", value)
    for name in ("SWITCH_POINTS_SHARE", "DIVERGENCE_SHARE"):  # on one thread there is no switch to look for
        monkeypatch.setattr(f"pilotfish.daemon.certify.survey.{name}", 0.0)
    tolerance = "pilotfish.daemon.certify.lanes.PLAIN_TOLERANCE"
    monkeypatch.setattr(tolerance, 10.0)  # a busy machine's timings must not decide
    return few


def certified(pin: TargetPin, probe_of: OpenProbe, n_ctx: int, *engines: str) -> Certificate:
    """Threads are one, so that stock's attention never splits: there is no switch to find."""
    options = EngineOptions(n_ctx=n_ctx, threads=1)
    identity = identity_of(pin, dict.fromkeys(engines, "build"), options)
    task = CertificationTask(identity, pin.name, options, engines, text=SAMPLE)

    def open_probe(setting: EngineSetting, deadline: Deadline) -> Probe:
        return probe_of(setting, pin.path, threads=1, verifier=setting.engine, n_ctx=n_ctx)

    return Certifier(task, open_probe, budget=400).run()


@pytest.mark.parametrize("n_ctx", [256, pytest.param(512, marks=pytest.mark.long)])
def test_a_certification_of_the_real_model_finds_one_class(
    smollm2_path: Path, pin_of: Callable[[Path], TargetPin], probe_of: OpenProbe, quick: tuple[int, ...], n_ctx: int
) -> None:
    certificate = certified(pin_of(smollm2_path), probe_of, n_ctx, "llama")
    assert certificate.lane.widths == quick
    assert certificate.lane.exact_cache
    assert certificate.lane.max_context == n_ctx
    assert certificate.complete


@pytest.mark.parametrize("n_ctx", [320, pytest.param(512, marks=pytest.mark.long)])  # both beyond 264
def test_a_certification_on_both_engines_prices_both_and_takes_the_cheaper_one(
    quantized: Callable[[str], Path],
    pin_of: Callable[[Path], TargetPin],
    probe_of: OpenProbe,
    quick: tuple[int, ...],
    monkeypatch: pytest.MonkeyPatch,
    n_ctx: int,
) -> None:
    monkeypatch.setattr(
        "pilotfish.daemon.certify.survey.candidates", lambda *asked, **how: candidates(*asked, **how)[:1]
    )
    certificate = certified(pin_of(quantized("Q4_K_M")), probe_of, n_ctx, "llama", "ik")
    priced = {variant["setting"]: variant for variant in certificate.variants if variant["lanes"]}
    exact = priced["ik: no flash, K f16, V f16"]
    assert exact["classes"] == {"64": ["1-2, 8"], "264": ["1-2, 8"]}
    assert 0 < exact["divergence"] < BOUND
    assert "llama" in {variant["engine"] for variant in priced.values()}
    cheapest = min(lane["expected_ratio"] for variant in priced.values() for lane in variant["lanes"])
    assert certificate.expected_ratio <= NEAR * cheapest + 0.001
    assert [variant["engine"] for variant in certificate.variants if variant["chosen"]] == [
        certificate.lane.setting.engine
    ]
