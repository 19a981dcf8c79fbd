"""Certificates are kept, found again for exactly the same load, and void after any difference."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pilotfish.daemon.certify import device, lookup
from pilotfish.daemon.certify.certificate import (
    Certificate,
    CertificateStore,
    Identity,
    _checksum,
    identity_of,
    is_of_here,
    parse,
)
from pilotfish.daemon.lab.fakes.fake_engine import fake_pin
from pilotfish.hooks.errors import UsageError
from pilotfish.hooks.protocols import Probe, TargetEngine
from pilotfish.hooks.types import EngineOptions, EngineSetting, FarEnd, Lane, Parity, TargetPin, WeightPin
from tests.fakes.measured import certificate_of

SETTING = EngineSetting("bf16", "f16", True, False, (("GGML_SWITCH", "0"),))
LANE = Lane("wide", (1, 2, 3, 8), SETTING, "lane", "", 512, True, 1024)


class Verifier:
    """One whose models can be certified; loads nothing."""

    name = "llama"
    build = "build-1"

    def fingerprint(self, state_dir: Path | None) -> str:
        return self.build

    def load(self, pin: TargetPin, lane: Lane | None, options: EngineOptions) -> TargetEngine:
        raise AssertionError("nothing here loads")

    def probe(self, pin: TargetPin, setting: EngineSetting, max_width: int, options: EngineOptions) -> Probe:
        raise AssertionError("nothing here is probed")


@pytest.fixture
def options(tmp_path: Path) -> EngineOptions:
    return EngineOptions(state_dir=tmp_path)


@pytest.fixture
def store(tmp_path: Path) -> CertificateStore:
    return CertificateStore(tmp_path)


def certificate(identity: Identity, lane: Lane = LANE) -> Certificate:
    return certificate_of(identity, lane)


def identity(options: EngineOptions, engine: str = "build-1") -> Identity:
    return identity_of(fake_pin(), {"llama": engine}, options)


def test_a_certificate_comes_back_as_it_was_put(store: CertificateStore, options: EngineOptions) -> None:
    made = certificate(identity(options))
    path = store.put(made)
    assert store.find(identity(options)) == made
    assert path is not None
    assert path.stem == made.identity.key
    assert [entry.certificate for entry in store.entries()] == [made]


def other_weights() -> TargetPin:
    return replace(fake_pin(), weights=(WeightPin("sha256:" + "1" * 64, Path("/nowhere/else.gguf"), 0),))


DIFFERENCES: dict[str, Callable[[EngineOptions], Identity]] = {
    "weights": lambda options: identity_of(other_weights(), {"llama": "build-1"}, options),
    "engines": lambda options: identity(options, "build-2"),
    "threads": lambda options: identity(replace(options, threads=7)),
    "gpu_layers": lambda options: identity(replace(options, gpu_layers=9)),
    "cache_type_k": lambda options: identity(replace(options, cache_type_k="q8_0")),
    "cache_type_v": lambda options: identity(replace(options, cache_type_v="q8_0")),
    "flash_attention": lambda options: identity(replace(options, flash_attention=True)),
    "device": lambda options: replace(identity(options), device="another machine"),
    "environment": lambda options: replace(identity(options), environment=(("GGML_CPU_TILED_MM", "0"),)),
    "slots": lambda options: identity(replace(options, slots=4)),
    "parity": lambda options: replace(identity(options), parity=Parity.STOCK),
}


@pytest.mark.parametrize("part", DIFFERENCES)
def test_any_difference_voids_it(part: str, store: CertificateStore, options: EngineOptions) -> None:
    store.put(certificate(identity(options)))
    other = DIFFERENCES[part](options)
    assert store.find(other) is None
    assert identity(options).differences(other) == [part]


@pytest.mark.parametrize(
    "changed",
    [
        {"far_ends": ()},
        {"far_ends": (FarEnd("a:1", "libraries 12"),)},
        {"far_ends": (FarEnd("a:1", "libraries 12"), FarEnd("b:2", "libraries 99"))},
        {"far_ends": (FarEnd("b:2", "libraries 34"), FarEnd("a:1", "libraries 12"))},
        {"tensor_split": (1.0, 2.0)},
        {"main_gpu": 0},
    ],
)
def test_it_names_all_that_computes_elsewhere(changed: dict[str, Any], options: EngineOptions) -> None:
    far_ends = (FarEnd("a:1", "libraries 12"), FarEnd("b:2", "libraries 34"))
    spread = replace(options, far_ends=far_ends)
    assert "far ends a:1 (libraries 12), b:2 (libraries 34), split by the engine" in identity(spread).device
    assert identity(spread).differences(identity(replace(spread, **changed))) == ["device"]


@pytest.mark.parametrize(
    ("far_ends", "split"),
    [
        ((), ()),
        ((FarEnd("a:1", "x86_64, AMD EPYC, 2 of 2 cores, 1 thread"), FarEnd("box.lan:50052")), ()),
        ((FarEnd("a:1", "libraries 12, memory 15.9 GiB 20/20 free + 80.0 GiB 3/20 free"), FarEnd("b:2")), ()),
        ((FarEnd("10.0.0.2:1", "libraries 12"), FarEnd("b-2:2", "RPC 7.0.0")), (3.0, 1.0)),
    ],
)
def test_it_tells_for_which_far_ends_it_was_made(far_ends, split, options: EngineOptions) -> None:
    device = identity(replace(options, far_ends=far_ends, tensor_split=split)).device
    named = [far_end.endpoint for far_end in far_ends]
    assert is_of_here(device, named)
    assert not is_of_here(device, [*named, "c:3"])
    assert not is_of_here(device, named[:1] if named else ["a:1"])
    assert not is_of_here(f"another {device}", named)


def test_every_part_of_an_identity_is_among_the_differences_tried() -> None:
    assert set(DIFFERENCES) == set(Identity.__slots__)


def test_a_certificate_of_another_build_is_told_of(
    store: CertificateStore, options: EngineOptions, caplog: pytest.LogCaptureFixture
) -> None:
    store.put(certificate(identity(options)))
    with caplog.at_level("INFO", "pilotfish.certificates"):
        assert store.find(identity(options, "build-2")) is None
    assert "another engines: ignored" in caplog.text


def edited(data: bytes) -> bytes:
    table = json.loads(data)
    table["lane"]["widths"].append(16)
    return json.dumps(table).encode()


def without_checksum(data: bytes) -> bytes:
    table = json.loads(data)
    del table["checksum"]
    return json.dumps(table).encode()


def too_deep(data: bytes) -> bytes:
    return b"[" * 100_000


def with_an_endless_width(data: bytes) -> bytes:
    table = json.loads(data)
    del table["checksum"]
    table["costs"] = [[float("inf"), 1, 1.0]]
    return json.dumps({**table, "checksum": _checksum(table)}).encode()


def of_another_format(data: bytes) -> bytes:
    return json.dumps({**json.loads(data), "format": 0}).encode()


@pytest.mark.parametrize(
    "damage",
    [
        edited,
        without_checksum,
        too_deep,
        with_an_endless_width,
        of_another_format,
        lambda data: data[:-40],
        lambda data: b"",
        lambda data: b"[1]",
    ],
    ids=["edited", "no checksum", "too deep", "endless", "other format", "truncated", "empty", "no object"],
)
def test_a_damaged_certificate_is_ignored_with_a_log_line(
    damage: Callable[[bytes], bytes],
    store: CertificateStore,
    options: EngineOptions,
    caplog: pytest.LogCaptureFixture,
) -> None:
    path = store.put(certificate(identity(options)))
    assert path is not None
    path.write_bytes(damage(path.read_bytes()))
    assert store.find(identity(options)) is None
    assert str(path) in caplog.text
    assert "measured again" in caplog.text
    assert store.entries()[0].trouble


@pytest.mark.parametrize("step", ["stat", "read_bytes"])
def test_one_that_is_removed_meanwhile_is_none(
    step: str, store: CertificateStore, options: EngineOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    stays, goes = (certificate(identity(replace(options, threads=n))) for n in (1, 2))
    store.put(stays)
    vanishing = store.put(goes)
    really = getattr(Path, step)

    def vanished(path: Path, *more: Any, **named: Any) -> Any:
        if path == vanishing:
            path.unlink(missing_ok=True)
        return really(path, *more, **named)

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(Path, step, vanished)
        assert [entry.certificate for entry in store.entries()] == [stays]
    store.put(goes)
    monkeypatch.setattr(Path, "read_bytes", vanished if step == "read_bytes" else really)
    assert store.find(goes.identity) in (None, goes)


def test_a_certificate_under_another_ones_name_is_ignored(store: CertificateStore, options: EngineOptions) -> None:
    path = store.put(certificate(identity(options)))
    other = identity(replace(options, threads=1))
    assert path is not None
    path.rename(path.with_name(f"{other.key}.json"))
    assert store.find(other) is None


def test_a_lane_with_absurd_widths_is_no_lane(options: EngineOptions) -> None:
    for widths in ((), (0, 1), (2, 1)):
        with pytest.raises(ValueError, match="widths"):
            lookup_roundtrip(certificate(identity(options), replace(LANE, widths=widths)))


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"prompt_ratio": "1.1"}, "prompt_ratio"),
        ({"prompt_ratio": 10**400}, "too large"),
        ({"complete": 1}, "complete"),
        ({"n_ctx": True}, "n_ctx"),
        ({"costs": [[float("inf"), 64, 0.01]]}, "OverflowError"),
        ({"findings": 5}, "TypeError"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_a_value_of_another_type_is_no_certificate_even_under_a_checksum_that_fits(
    wrong: dict[str, object], named: str, options: EngineOptions
) -> None:
    table = {**json.loads(json.dumps(certificate(identity(options)).to_json())), **wrong}
    with pytest.raises(ValueError, match=named):
        parse(json.dumps({**table, "checksum": _checksum(table)}).encode())


def test_whole_numbers_will_do_for_real_ones(options: EngineOptions) -> None:
    assert lookup_roundtrip(replace(certificate(identity(options)), seconds=59)).seconds == 59


@pytest.mark.parametrize(
    ("named", "wrong"),
    [
        ("flash_attention", {"setting": replace(LANE.setting, flash_attention="yes")}),
        ("name", {"name": None}),
        ("max_context", {"max_context": 1.5}),
        ("'all' is not a valid Parity", {"parity": "all"}),
    ],
)
def test_a_lane_of_other_types_is_no_lane(named: str, wrong: dict[str, Any], options: EngineOptions) -> None:
    with pytest.raises(ValueError, match=named):
        lookup_roundtrip(certificate(identity(options), replace(LANE, **wrong)))


def lookup_roundtrip(made: Certificate) -> Certificate:
    table = json.loads(json.dumps(made.to_json()))
    return parse(json.dumps({**table, "checksum": _checksum(table)}).encode())


def test_keys_may_be_shortened_but_not_guessed(store: CertificateStore, options: EngineOptions) -> None:
    made = certificate(identity(options))
    store.put(made)
    assert store.get(made.identity.key[:6]).certificate == made
    for key in ("", "zz"):
        with pytest.raises(UsageError, match="certificates list"):
            store.get(key)


def test_a_load_takes_its_certificates_lane(store: CertificateStore, options: EngineOptions) -> None:
    store.put(certificate(identity(options)))
    found = lookup.find_lane(fake_pin(), [Verifier()], options)
    assert found.lane == LANE
    assert found.certificate is not None


def test_without_a_certificate_the_verifier_checks_and_certifying_is_of_use(options: EngineOptions) -> None:
    found = lookup.find_lane(fake_pin(), [Verifier()], options)
    assert (found.lane, found.certificate, found.identity) == (None, None, identity(options))


def test_stock_parity_without_a_certificate_is_plain_decoding_in_stock_settings(options: EngineOptions) -> None:
    lane = lookup.find_lane(fake_pin(), [Verifier()], options, Parity.STOCK).lane
    assert lane is not None
    assert (lane.widths, lane.setting, lane.parity) == ((1,), EngineSetting("f16", "f16", None), "stock")


def test_no_parity_is_every_width_in_stock_settings(options: EngineOptions) -> None:
    lane = lookup.find_lane(fake_pin(), [Verifier()], options, Parity.NONE).lane
    assert lane is not None
    assert lane.max_width == 16
    assert lane.parity == "none"


def test_a_verifier_without_a_probe_keeps_its_own_check(options: EngineOptions) -> None:
    class Plain:
        name = "plain"

        def load(self, pin: TargetPin, lane: Lane | None, options: EngineOptions) -> TargetEngine:
            raise AssertionError("nothing here loads")

    plain = Plain()
    found = lookup.find_lane(fake_pin(), [plain], options)
    assert found == lookup.LaneLookup((lookup.Attempt(plain),))


def test_the_lanes_environment_is_taken_back_when_loading_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GGML_SWITCH", "1")
    seen = []

    def fails() -> None:
        with lookup.engine_environment(LANE):
            seen.append(os.environ["GGML_SWITCH"])
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fails()
    assert (seen, os.environ["GGML_SWITCH"]) == (["0"], "1")
    with lookup.engine_environment(LANE):
        pass
    assert os.environ["GGML_SWITCH"] == "0"


def test_the_device_is_told_the_same_way_twice_and_names_the_cores() -> None:
    assert device.device_name() == device.device_name()
    assert "cores" in device.device_name()
