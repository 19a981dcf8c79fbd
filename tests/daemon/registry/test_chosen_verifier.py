"""Which engines may compute: what is missing, what cannot be used, and what has the device."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pilotfish.daemon.registry import accelerators
from pilotfish.daemon.registry.chosen_verifier import fit_verifiers
from pilotfish.daemon.registry.registry import Registry
from pilotfish.hooks.errors import EngineError, EngineMissing
from pilotfish.hooks.protocols import Verifier
from pilotfish.hooks.types import EngineOptions

BOTH = ("llama", "ik")


class Engine:
    """A verifier that is there, is missing, or cannot be used; `devices` are its accelerators."""

    def __init__(self, name: str, error: Exception | None = None, devices: tuple[str, ...] = ()) -> None:
        self.name, self._error, self._devices = name, error, devices

    def fingerprint(self, state_dir: Path | None) -> str:
        if self._error:
            raise self._error
        return f"build of {self.name}"

    def devices(self) -> tuple[str, ...]:
        return self._devices

    def load(self, *arguments: object) -> None: ...

    def probe(self, *arguments: object) -> None: ...


class Shelf(Registry):
    """A registry of these verifiers alone."""

    def __init__(self, *engines: Engine) -> None:
        super().__init__()
        self._engines = {engine.name: engine for engine in engines}

    def verifier(self, name: str) -> Verifier | None:
        return self._engines.get(name)  # type: ignore[return-value]


MISSING = EngineMissing("it is not installed; install it with: pip install it")
BROKEN = EngineError("it was built for another processor; leave models to the other")


def names(registry: Registry, wanted: tuple[str, ...] = BOTH, **options: int | None) -> list[str]:
    return [verifier.name for verifier in fit_verifiers(registry, wanted, EngineOptions(**options))]  # type: ignore[arg-type]


def test_every_engine_that_is_there_may_compute_in_the_order_of_the_config() -> None:
    registry = Shelf(Engine("ik"), Engine("llama"))
    assert names(registry) == ["llama", "ik"]
    assert registry.problems == []


@pytest.mark.parametrize("gone", BOTH)
def test_one_that_is_not_installed_is_no_candidate_and_no_problem(gone: str) -> None:
    registry = Shelf(*(Engine(name, MISSING if name == gone else None) for name in BOTH))
    assert names(registry) == [name for name in BOTH if name != gone]
    assert registry.problems == []


@pytest.mark.parametrize("error", [BROKEN, FileNotFoundError("libllama.so")])
def test_one_that_cannot_be_used_costs_a_line(error: Exception) -> None:
    registry = Shelf(Engine("llama"), Engine("ik", error))
    assert names(registry) == ["llama"]
    assert list(map(str, registry.problems)) == [f"engine ik: {error}"]
    assert registry.remarks == (f"engine ik: {error}",)


def test_a_plugin_that_registers_no_verifier_of_the_name_is_a_missing_engine() -> None:
    assert names(Shelf(Engine("ik"))) == ["ik"]


def test_without_any_engine_every_remedy_is_named() -> None:
    with pytest.raises(EngineError, match=r"another processor.*pip install it"):
        fit_verifiers(Shelf(Engine("llama", MISSING), Engine("ik", BROKEN)), BOTH, EngineOptions())
    with pytest.raises(EngineError, match=r"pilotfish\[llama\].*pilotfish\[ik\]"):
        fit_verifiers(Shelf(), BOTH, EngineOptions())


@pytest.mark.parametrize("gpu_layers", [None, 1, 99])
def test_where_layers_may_go_to_an_accelerator_an_engine_without_it_is_no_candidate(gpu_layers: int | None) -> None:
    registry = Shelf(Engine("llama", devices=("CUDA0",)), Engine("ik"))
    assert names(registry, gpu_layers=gpu_layers) == ["llama"]
    assert registry.problems == []
    both = Shelf(Engine("llama", devices=("CUDA0",)), Engine("ik", devices=("CUDA0", "CUDA1")))
    assert names(both, gpu_layers=gpu_layers) == ["llama", "ik"]


def test_without_layers_for_it_every_engine_may_compute() -> None:
    assert names(Shelf(Engine("llama", devices=("CUDA0",)), Engine("ik")), gpu_layers=0) == ["llama", "ik"]


@pytest.fixture
def machine_with(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """`machine_with("an accelerator")`: what the machine shows."""

    def shows(*names: str) -> None:
        monkeypatch.setattr(accelerators, "shown", lambda: list(names))

    return shows


def test_layers_that_the_launch_puts_on_an_accelerator_are_not_computed_on_the_processor(
    machine_with: Callable[..., None],
) -> None:
    machine_with("NVIDIA L4")
    alone = Shelf(Engine("llama", MISSING), Engine("ik"))
    with pytest.raises(EngineError, match=r"engine ik: .*accelerator \(NVIDIA L4\).*processors only"):
        names(alone, gpu_layers=99)
    assert names(Shelf(Engine("llama", MISSING), Engine("ik", devices=("CUDA0",))), gpu_layers=99) == ["ik"]
    assert names(Shelf(Engine("llama"), Engine("ik")), gpu_layers=99) == ["llama"]  # as stock's own library would
    assert names(alone, gpu_layers=0) == ["ik"]
    assert names(alone) == ["ik"]


def test_on_a_machine_without_one_the_only_engine_left_computes_whatever_the_launch_asks_for(
    machine_with: Callable[..., None],
) -> None:
    machine_with()
    assert names(Shelf(Engine("llama", MISSING), Engine("ik")), gpu_layers=99) == ["ik"]
    assert names(Shelf(Engine("llama"), Engine("ik")), gpu_layers=99) == ["llama", "ik"]


@pytest.mark.model
def test_the_engines_that_are_installed_here_are_found_without_loading_them() -> None:
    assert names(Registry.load()) == ["llama", "ik"]
