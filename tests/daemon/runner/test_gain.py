"""With which launches speculation has nothing to gain, and when that turns out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pilotfish.daemon.certify.certificate import Certificate, CertificateStore, Identity, identity_of
from pilotfish.daemon.certify.left_to_stock import Left
from pilotfish.daemon.certify.lookup import Attempt, LaneLookup
from pilotfish.daemon.config.types import Config, Speculation
from pilotfish.daemon.core.generator import Generator
from pilotfish.daemon.core.totals import Standing
from pilotfish.daemon.drafters.memory_bounds import Bound
from pilotfish.daemon.lab.fakes import FakeEngine, fake_pin
from pilotfish.daemon.registry import accelerators
from pilotfish.daemon.registry.registry import Registry
from pilotfish.daemon.runner import gain
from pilotfish.daemon.runner.gain import (
    RUNNER,
    NothingToGain,
    Outlook,
    awaits_certificate,
    demand_company,
    demand_device,
    demand_drafts,
    demand_memory,
    demand_price,
)
from pilotfish.daemon.runner.launch_arguments import Launch
from pilotfish.daemon.runner.loading import load
from pilotfish.hooks.errors import EngineError
from pilotfish.hooks.types import EngineOptions, EngineSetting, Footprint, Lane, Parity
from pilotfish.manifests.pins import pin_file
from pilotfish.plugins.verifiers.ik import IkVerifier
from pilotfish.plugins.verifiers.llama import LlamaVerifier
from tests.engines import VERIFIERS
from tests.fakes.measured import certificate_of

REASON = "its sliding window forgets cells"
UNKNOWN = LaneLookup(())


def test_a_plain_model_has_nothing_to_gain_and_that_lasts():
    with pytest.raises(NothingToGain, match=REASON) as raised:
        demand_drafts(Standing("plain", REASON, by_lane=True), UNKNOWN, awaited=False)
    assert isinstance(raised.value.left, Left)
    assert raised.value.left.until is None
    assert "pilotfish certify" in str(raised.value)


def test_what_a_longer_look_would_be_told_is_left_with_the_verdict():
    with pytest.raises(NothingToGain) as raised:
        demand_drafts(Standing("plain", REASON, by_lane=True), UNKNOWN, awaited=False, job="a job")
    assert raised.value.left is not None
    assert raised.value.left.due


def test_where_the_lane_is_not_the_reason_no_certificate_is_asked_for():
    with pytest.raises(NothingToGain) as raised:
        demand_drafts(Standing("plain", "no drafter is promoted"), UNKNOWN, awaited=False, job="a job")
    assert "certify" not in str(raised.value)
    assert raised.value.left is None or not raised.value.left.due


@pytest.mark.parametrize("standing", [Standing(), Standing("parked", "did not pay"), Standing("off", "by the config")])
def test_any_other_may_gain(standing):
    demand_drafts(standing, UNKNOWN, awaited=False)


def test_one_in_stocks_own_setting_waits_for_its_certificate(monkeypatch):
    monkeypatch.delenv("PILOTFISH_CERTIFY", raising=False)
    assert awaits_certificate(Parity.STOCK, "a job")
    assert not awaits_certificate(Parity.NONE, "a job")
    assert not awaits_certificate(Parity.STOCK, "")
    demand_drafts(Standing("plain", "no certificate yet"), UNKNOWN, awaited=True)
    monkeypatch.setenv("PILOTFISH_CERTIFY", "off")
    assert not awaits_certificate(Parity.STOCK, "a job")


def loaded(slots: int, joins: int, priced: EngineSetting | None = None) -> tuple[FakeEngine, Attempt, LaneLookup]:
    """An engine whose lane was found at load, and whose forwards hold `joins` sequences of a token."""
    attempt = Attempt(LlamaVerifier())
    return FakeEngine(slots=slots, joins=joins), attempt, LaneLookup((attempt,), priced=priced)


def test_requests_at_once_that_take_more_forwards_than_stock_are_stocks_until_somebody_measured(monkeypatch):
    monkeypatch.delenv("PILOTFISH_CERTIFY", raising=False)
    with pytest.raises(NothingToGain, match="4 requests at once would take 2 forwards a step") as raised:
        demand_company(*loaded(slots=4, joins=3), job="a job")
    assert raised.value.left is not None
    assert raised.value.left.due
    assert raised.value.left.until is None


def test_where_nobody_will_measure_that_is_tried_again_after_a_day(monkeypatch):
    monkeypatch.setenv("PILOTFISH_CERTIFY", "off")
    with pytest.raises(NothingToGain) as raised:
        demand_company(*loaded(slots=4, joins=3), job="a job")
    assert raised.value.left is not None
    assert raised.value.left.until is not None


def test_requests_that_share_a_forward_as_with_stock_may_gain():
    demand_company(*loaded(slots=1, joins=1))
    demand_company(*loaded(slots=4, joins=4))


def test_a_lane_with_a_price_for_as_many_requests_is_not_judged_by_their_forwards():
    engine, attempt, found = loaded(slots=4, joins=1)
    demand_company(engine, replace(attempt, lane=engine.lane), found)
    demand_company(*loaded(slots=4, joins=1, priced=engine.lane.setting))


def test_what_another_engine_takes_for_a_step_is_to_be_known_where_stocks_has_no_lane(monkeypatch):
    monkeypatch.delenv("PILOTFISH_CERTIFY", raising=False)
    plain, other = Attempt(LlamaVerifier()), Attempt(IkVerifier())
    lane = FakeEngine().lane
    found = LaneLookup((plain, other))
    with pytest.raises(NothingToGain, match="what ik takes for a step is not measured yet") as raised:
        demand_price(other, lane, found, plain=plain, job="a job")
    assert raised.value.left is not None
    assert (raised.value.left.due, raised.value.left.until) == (True, None)
    demand_price(other, lane, replace(found, priced=lane.setting), plain=plain)
    demand_price(replace(other, lane=lane), lane, found, plain=plain)
    demand_price(other, replace(lane, widths=(1,)), found, plain=plain)
    demand_price(other, lane, LaneLookup((other,)), plain=None)
    demand_price(plain, lane, found, plain=other)


class Sized:
    """A verifier of a model with weights of 20 bytes and a cache of 10, on a device."""

    name = "sized"

    def __init__(self, device: str = "cpu") -> None:
        self.device = device

    def load(self, pin, lane, options):
        raise AssertionError("nothing is loaded")

    def footprint(self, pin, options):
        return Footprint(20, 10, self.device)


ROOM = RUNNER + 10


@pytest.mark.parametrize(
    ("available", "device", "mapped", "lends", "fits"),
    [
        (ROOM, "cpu", True, True, True),
        (ROOM - 1, "cpu", True, True, False),
        (ROOM + 20, "cpu", False, True, True),
        (ROOM + 19, "cpu", False, True, False),
        (ROOM - 1, "CUDA0", True, True, True),
        (ROOM - 1, "cpu", True, False, True),
    ],
)
def test_what_does_not_fit_beside_everything_else_is_stocks_for_now(
    monkeypatch, available, device, mapped, lends, fits
):
    monkeypatch.setattr(gain, "bounds_for", lambda device: [Bound("the system's memory", available, 1 << 40, lends)])
    options = EngineOptions(use_mmap=mapped)
    if fits:
        demand_memory(fake_pin(), Sized(device), options)
        return
    with pytest.raises(NothingToGain, match="too little memory") as raised:
        demand_memory(fake_pin(), Sized(device), options)
    assert raised.value.left is None


class OnProcessors:
    """A verifier that is installed, and computes on `devices`."""

    name = "ik"

    def __init__(self, *devices: str) -> None:
        self._devices = devices

    def devices(self):
        return self._devices

    def fingerprint(self, state_dir):
        return "build of ik"

    def load(self, pin, lane, options):
        raise AssertionError("nothing is loaded")


@pytest.fixture
def only_ik(monkeypatch):
    """`only_ik("NVIDIA L4", has=("CUDA0",))`: the machine shows these, and `ik`, the one engine, has those."""

    def here(*shown: str, has: tuple[str, ...] = ()) -> OnProcessors:
        monkeypatch.setattr(accelerators, "shown", lambda: list(shown))
        ik = OnProcessors(*has)
        monkeypatch.setattr(Registry, "verifier", lambda registry, name: ik if name == "ik" else None)
        return ik

    return here


def test_where_stock_computes_on_an_accelerator_an_engine_without_it_is_not_chosen(tmp_path, only_ik):
    only_ik("NVIDIA L4")
    with pytest.raises(NothingToGain, match="stock computes on CUDA0, and the build of ik on processors") as raised:
        load(Launch(tmp_path / "unread"), Config(), tmp_path, must_gain=True, stock_devices=lambda: ("CUDA0",))
    assert raised.value.left is not None
    assert raised.value.left.until is not None, "devices come and go"


@pytest.mark.parametrize(
    ("shown", "has", "layers", "stock_has"),
    [
        ((), (), None, ("CUDA0",)),  # and stock is not asked
        (("NVIDIA L4",), (), 0, ("CUDA0",)),
        (("NVIDIA L4",), (), None, ()),  # Ollama was installed for processors only
        (("NVIDIA L4",), ("CUDA0",), None, ("CUDA0",)),
    ],
)
def test_everywhere_else_it_may_be(only_ik, shown, has, layers, stock_has):
    ik = only_ik(*shown, has=has)
    demand_device(Registry(), (ik,), EngineOptions(gpu_layers=layers), lambda: stock_has)


def test_an_engine_that_cannot_tell_its_devices_has_none_and_costs_a_line(only_ik, monkeypatch):
    def broken():
        raise EngineError("its library cannot be asked")

    ik, registry = only_ik("NVIDIA L4"), Registry()
    monkeypatch.setattr(ik, "devices", broken)
    with pytest.raises(NothingToGain):
        demand_device(registry, (ik,), EngineOptions(), lambda: ("CUDA0",))
    assert registry.remarks == ("engine ik: its library cannot be asked",)


def outlook(widths=(1,), parity=Parity.LANE, *, awaited=False, enabled=True) -> Outlook:
    config = Config(Speculation(parity=parity, enabled=enabled))
    generator = Generator(FakeEngine(widths=widths), fake_pin(), Registry.load(config), config)
    return Outlook(generator, Path("/nowhere"), awaited)


def test_while_it_runs_a_model_that_became_plain_is_stocks():
    assert "nothing to gain" in outlook().why_stock()
    assert outlook((1, 2)).why_stock() == ""
    stricter = outlook((1, 2))
    stricter.generator.reconfigure(Config(Speculation(parity=Parity.STOCK)))
    assert "the config asks for 'stock'" in stricter.why_stock()


def test_one_that_is_switched_off_or_waits_for_its_certificate_stays():
    assert outlook(enabled=False).why_stock() == ""
    assert outlook(awaited=True).why_stock() == ""


def certificate(identity: Identity, widths: tuple[int, ...] = (1,)) -> Certificate:
    """One that says of a model: these widths."""
    lane = Lane("certified", widths, EngineSetting("bf16", "f16"), parity=Parity.NONE, reason="all widths differ")
    return certificate_of(identity, lane)


@pytest.mark.parametrize(("widths", "stays"), [((1,), False), ((1, 2), True)])
def test_a_certificate_that_is_made_while_it_runs_is_taken_for_what_it_says(tmp_path, widths, stays):
    running = replace(outlook((1, 2), awaited=True), state_dir=tmp_path)
    weights = tuple(weight.digest for weight in running.generator.pin.weights)
    identity = Identity(weights, (("llama", "build"),), "here", None, None, None, None, None, ())
    CertificateStore(tmp_path).put(certificate(identity, widths))
    assert running.why_stock() == ""
    running.certified()
    assert ("all widths differ" in running.why_stock()) is not stays
    assert not running.awaited


def test_without_one_nothing_is_taken_for_anything(tmp_path):
    running = replace(outlook((1, 2)), state_dir=tmp_path)
    running.certified()
    assert running.why_stock() == ""


@pytest.fixture
def certified_plain(smollm2_path: Path, tmp_path: Path) -> Path:
    """The file of a certificate that says of the real model: no width but 1."""
    launch = Launch(smollm2_path, context=512, threads=1)
    pin, options = pin_file(smollm2_path, tmp_path), launch.engine_options(tmp_path)
    builds = {name: made().fingerprint(tmp_path) for name, made in VERIFIERS.items()}
    path = CertificateStore(tmp_path).put(certificate(identity_of(pin, builds, options)))
    assert path is not None
    return path


@pytest.mark.model
def test_a_certificate_says_so_before_anything_is_loaded(smollm2_path, tmp_path, certified_plain, monkeypatch):
    monkeypatch.setattr(LlamaVerifier, "load", Sized().load)
    with pytest.raises(NothingToGain, match="all widths differ") as raised:
        load(Launch(smollm2_path, context=512, threads=1), Config(), tmp_path, must_gain=True)
    assert raised.value.left is not None
    assert raised.value.left.certificate == str(certified_plain)


@pytest.mark.model
def test_a_check_at_load_says_so_before_it_is_ready(smollm2_path, tmp_path):
    config = Config(Speculation(parity=Parity.STOCK))
    launch = Launch(smollm2_path, context=512, threads=1)
    with pytest.raises(NothingToGain, match="pilotfish certify makes one"):
        load(launch, config, tmp_path, must_gain=True)
    generator, _ = load(launch, config, tmp_path)
    generator.close()
