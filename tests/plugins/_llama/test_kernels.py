"""With kernels, blocks of float weights are bit for bit single steps, for a real libllama in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import pytest

from pilotfish.daemon.kernels.kernel_building import build_kernels
from pilotfish.daemon.kernels.kernels_here import FOLDER, obstacle
from pilotfish.daemon.lab.tiny_models.catalogue import architectures
from pilotfish.daemon.lab.tiny_models.making import tiny_model
from pilotfish.hooks.errors import EngineError
from pilotfish.hooks.far_end import BUILT_FOR
from pilotfish.hooks.kernels import KERNELS
from pilotfish.plugins._llama.build import expected_folder, fingerprint_of
from pilotfish.plugins._llama.kernels import Kernels, kernels_for

pytestmark = [pytest.mark.model, pytest.mark.skipif(bool(obstacle()), reason=obstacle())]

LANE = """
import json, sys
from pathlib import Path
from pilotfish.daemon.config.files import load_or_last_good
from pilotfish.daemon.registry.registry import Registry
from pilotfish.hooks.types import EngineOptions
from pilotfish.manifests.pins import pin_file
state = Path(sys.argv[2])
verifier = Registry.load(load_or_last_good()).verifier("llama")
engine = verifier.load(pin_file(Path(sys.argv[1]), state), None, EngineOptions(n_ctx=512, state_dir=state))
print(json.dumps([engine.lane.widths, engine.lane.reason]))
"""
REFUSED = f"""
try:
    {LANE.strip().replace(chr(10), chr(10) + "    ")}
except Exception as error:
    print(error)
"""


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library, in a cache folder of its own: no other test computes with it."""
    return build_kernels(tmp_path_factory.mktemp("cache") / FOLDER)[0]


@pytest.fixture
def said(kernels: Path, tmp_path: Path) -> Callable[..., str]:
    """What a process that may use the kernels prints; its config says nothing but `[engine] kernels`."""

    def run(*arguments: str, use: str = "auto") -> str:
        (tmp_path / "pilotfish.toml").write_text(f'[engine]\nkernels = "{use}"\n')
        config = str(tmp_path / "pilotfish.toml")
        ours = {"PILOTFISH_CACHE": str(kernels.parents[1]), "PILOTFISH_CONFIG": config, KERNELS: ""}
        command = [sys.executable, "-P", *arguments]
        done = subprocess.run(command, env={**os.environ, **ours}, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def tiny(name: str, format: str) -> Path:
    (architecture,) = architectures([name])
    return tiny_model(architecture, format)


def test_experts_whose_choice_is_made_in_floats_have_a_lane(said, tmp_path):
    model = str(tiny("granitemoe", "Q8_0"))
    widths, _ = json.loads(said("-c", LANE, model, str(tmp_path / "on")))
    assert max(widths) >= 4
    assert widths[0] == 1
    widths, reason = json.loads(said("-c", LANE, model, str(tmp_path / "off"), use="off"))
    assert (widths, reason) == ([1], "its matrices of floats are multiplied in another way for one row alone")


@pytest.mark.parametrize("format", ["F16", "BF16", "F32"])
def test_drafts_change_no_id_of_a_model_of_floats(said, format):
    command = ("-m", "pilotfish.daemon.cli", "parity", str(tiny("llama", format)), "--engine", "llama", "--json")
    report = json.loads(said(*command, "--tokens", "24", "--task", "code-edit"))
    assert report["differences"] == 0
    assert sum(trial["accepted"] for trial in report["trials"]) > 24
    assert sum(trial["drafted"] - trial["accepted"] for trial in report["trials"]) > 24


def test_they_are_a_part_of_the_fingerprint(kernels, monkeypatch, tmp_path):
    folder = expected_folder()
    monkeypatch.delenv(KERNELS)
    without = fingerprint_of(folder, tmp_path)
    monkeypatch.setenv(KERNELS, str(kernels))
    assert kernels_for(folder) == kernels
    assert fingerprint_of(folder, tmp_path) != without


def test_they_go_with_the_libraries_that_they_were_made_for(kernels, monkeypatch, tmp_path):
    other = kernels.with_name(kernels.name.replace(version("llama-cpp-python"), "0.0.1"))
    other.write_bytes(kernels.read_bytes())
    monkeypatch.setenv(KERNELS, str(other))
    assert kernels_for(expected_folder()) is None
    monkeypatch.setenv(KERNELS, str(kernels))
    assert kernels_for(tmp_path) is None  # no libggml-cpu
    (tmp_path / "libggml-cpu.so").touch()
    assert kernels_for(tmp_path) is None  # of a version that nobody knows
    (tmp_path / BUILT_FOR).write_text("0.0.1\n")
    assert kernels_for(tmp_path) is None
    (tmp_path / BUILT_FOR).write_text(f"{version('llama-cpp-python')}\n")
    assert kernels_for(tmp_path) == kernels


def test_a_libllama_that_was_loaded_before_them_is_an_error_with_the_remedy(said, tmp_path):
    text = said("-c", f"import llama_cpp\n{REFUSED}", str(tiny("llama", "F32")), str(tmp_path))
    assert "something, a plugin perhaps, loaded libllama before pilotfish did" in text
    assert '[engine] kernels = "off"' in text


def test_a_file_that_is_no_library_is_named_with_the_remedy(tmp_path):
    (tmp_path / "batch-invariant.so").write_text("no library")
    with pytest.raises(EngineError, match=r"batch-invariant\.so cannot be loaded.*pilotfish kernels-build"):
        Kernels(tmp_path / "batch-invariant.so")
