"""What libllama says of its devices' memory, on a machine that may have none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pilotfish.hooks.errors import BrokenModel
from pilotfish.hooks.types import EngineOptions, TargetPin
from pilotfish.plugins.verifiers.ik import IkVerifier
from pilotfish.plugins.verifiers.llama import LlamaVerifier

pytestmark = pytest.mark.model


@pytest.fixture
def devices(monkeypatch: pytest.MonkeyPatch) -> Any:
    """libllama's devices replaced by a CPU, its helper, a graphics card, an integrated one and an Apple one."""
    LlamaVerifier().memory("none")  # the library is there
    from pilotfish.plugins._llama import devices

    found = [("CPU", 0, 1), ("BLAS", 3, 2), ("CUDA0", 1, 3), ("Vulkan0", 2, 4), ("MTL0", 1, 5)]

    class Ggml:
        @staticmethod
        def ggml_backend_dev_memory(handle: int, free: Any, total: Any) -> None:
            free._obj.value, total._obj.value = 10 * handle, 100 * handle

    monkeypatch.setattr(devices, "_devices", lambda: found)
    monkeypatch.setattr(devices, "ggml_functions", Ggml)
    return devices


def test_the_cpu_is_no_accelerator_and_neither_is_an_unknown_name() -> None:
    assert LlamaVerifier().memory("CPU") is None
    assert LlamaVerifier().memory("NV") is None


def test_an_accelerator_reports_its_memory_whatever_the_case_of_its_name(devices: Any) -> None:
    assert LlamaVerifier().memory("cuda0") == (30, 300, False)


def test_integrated_and_apple_devices_share_the_systems_memory(devices: Any) -> None:
    assert LlamaVerifier().memory("Vulkan0") == (40, 400, True)
    assert LlamaVerifier().memory("MTL0") == (50, 500, True)


def test_a_model_goes_to_the_first_accelerator_unless_no_layer_may(devices: Any) -> None:
    assert devices.device_for(None) == "CUDA0"
    assert devices.device_for(99) == "CUDA0"
    assert devices.device_for(0) == "cpu"


def test_the_footprint_of_what_is_no_gguf_is_refused_by_name(
    pin_of: Callable[[Path], TargetPin], tmp_path: Path
) -> None:
    path = tmp_path / "notes.gguf"
    path.write_text("no model at all")
    with pytest.raises(BrokenModel, match=r"notes\.gguf of .* is not a GGUF file"):
        LlamaVerifier().footprint(pin_of(path), EngineOptions())


def test_a_targets_footprint_grows_with_its_context(smollm2_path: Path, pin_of: Callable[[Path], TargetPin]) -> None:
    def cache(n_ctx: int) -> int:
        return LlamaVerifier().footprint(pin_of(smollm2_path), EngineOptions(n_ctx=n_ctx)).cache

    cell = 30 * 3 * 64 * (2 + 2)  # layers, key-value heads, their size, bf16 keys and f16 values
    mask = 512 * 2
    assert cache(2048) - cache(1024) == 1024 * (cell + mask)


@pytest.mark.parametrize("slots", [2, 4])
def test_a_targets_footprint_has_a_cache_for_each_slot(
    slots: int, smollm2_path: Path, pin_of: Callable[[Path], TargetPin]
) -> None:
    def caches(verifier: LlamaVerifier | IkVerifier, n: int) -> int:
        return verifier.footprint(pin_of(smollm2_path), EngineOptions(n_ctx=4096, slots=n)).cache

    per_slot = 30 * 3 * 2 * 64 * 4096 * 2  # layers, heads, keys and values, head size, cells, bytes
    assert caches(LlamaVerifier(), slots) - caches(LlamaVerifier(), 1) == (slots - 1) * per_slot
    assert caches(IkVerifier(), slots) == slots * caches(IkVerifier(), 1)  # contexts of their own, buffers included
