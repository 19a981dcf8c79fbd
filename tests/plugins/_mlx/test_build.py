"""What is known of MLX without importing it; where it is missing, what to do about it."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from pilotfish.hooks.errors import ConfigError, EngineError, EngineMissing
from pilotfish.hooks.types import EngineOptions, EngineSetting, TargetPin
from pilotfish.lab.fakes import fake_pin
from pilotfish.manifests.store import Store
from pilotfish.plugins._ik.model_fitness import check_model
from pilotfish.plugins._mlx import build
from pilotfish.plugins._mlx.setting import exact_setting, quantized
from pilotfish.plugins.verifiers.llama import LlamaVerifier
from pilotfish.plugins.verifiers.mlx import MLXVerifier
from tests.manifests.builders import write_model


def test_where_it_is_not_installed_every_way_in_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    verifier = MLXVerifier()
    for ask in (lambda: verifier.fingerprint(None), lambda: verifier.load(fake_pin(), None, EngineOptions())):
        with pytest.raises(EngineMissing, match=r"pip install 'pilotfish\[mlx\]'"):
            ask()


@pytest.mark.drafters
def test_the_fingerprint_covers_what_computes_and_imports_none_of_it(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from pilotfish.plugins.verifiers.mlx import MLXVerifier\n"
        "found = MLXVerifier().fingerprint(Path(sys.argv[1])), 'mlx.core' in sys.modules, 'mlx_lm' in sys.modules\n"
        "print(*found)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [build.fingerprint(tmp_path), "False", "False"]


@pytest.mark.drafters
def test_what_chooses_other_kernels_is_another_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Widths that agree on one device, remembered or certified, say nothing about another."""
    found = [MLXVerifier({"device": device}).fingerprint(tmp_path) for device in ("", "cpu", "gpu")]
    monkeypatch.setenv("MLX_ENABLE_TF32", "0")
    found.append(MLXVerifier().fingerprint(tmp_path))
    assert len(set(found)) == 4


def test_a_device_that_there_is_not_is_a_fault_of_the_config() -> None:
    with pytest.raises(ConfigError, match=r"verifiers\.mlx\.device"):
        MLXVerifier({"device": "tpu"})


def test_settings_keep_to_what_the_launch_asks_for() -> None:
    asked = EngineOptions(cache_type_k="q8_0", flash_attention=False)
    setting = exact_setting(asked)
    assert setting == EngineSetting("q8_0", "q8_0", False, engine="mlx")
    found = quantized(setting, 96, "m")
    assert found is not None
    assert (found.bits, found.group_size) == (8, 32)
    assert quantized(exact_setting(EngineOptions(cache_type_k="bf16")), 96, "m") is None
    for wrong in (EngineSetting("q8_0", "f16", engine="mlx"), EngineSetting("q5_1", "q5_1", engine="mlx")):
        with pytest.raises(EngineError, match="MLX has both in one of f16, q8_0, q4_0"):
            quantized(wrong, 64, "m")
    with pytest.raises(EngineError, match="keys of 40 numbers"):
        quantized(setting, 40, "m")


def test_a_pin_of_no_store_or_of_another_manifest_is_not_opened(store: Store) -> None:
    write_model(store.root, "m", [], {})
    loose = TargetPin("m", fake_pin().weights, fake_pin().tokenizer, "sha256:0", "safetensors")
    assert "is in no model store" in MLXVerifier().unfit_for(loose, EngineOptions())


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "models")


def test_engines_for_ggufs_leave_such_models_to_it() -> None:
    tensors = TargetPin("m", fake_pin().weights, fake_pin().tokenizer, "sha256:0", "safetensors")
    with pytest.raises(EngineError, match="leave this one to mlx"):
        LlamaVerifier().load(tensors, None, EngineOptions())
    with pytest.raises(EngineError, match="leave this one to mlx"):
        check_model(tensors, EngineSetting(engine="ik"), None)
