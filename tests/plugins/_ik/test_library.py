"""A library that cannot be used is refused with its cause and a remedy; one that can lies beside libllama."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pilotfish.hooks.errors import EngineError
from pilotfish.hooks.types import EngineOptions, EngineSetting, TargetPin
from pilotfish.plugins._ik import build, fitness
from pilotfish.plugins.verifiers.ik import IkVerifier
from pilotfish.plugins.verifiers.llama import LlamaVerifier

pytestmark = pytest.mark.model

PinOf = Callable[[Path], TargetPin]
SETTING = EngineSetting("f16", "f16", flash_attention=False, engine="ik")
LIBRARY = "IK_LLAMA_CPP_LIB_PATH"


@pytest.fixture
def refusal(smollm2_path: Path, pin_of: PinOf) -> Callable[[], str]:
    """Why a load is refused just now; the message names the model and the library."""

    def why() -> str:
        with pytest.raises(EngineError) as caught:
            IkVerifier().load(pin_of(smollm2_path), None, EngineOptions(n_ctx=256))
        assert "smollm2:135m" in str(caught.value)
        return str(caught.value)

    return why


def llama_cpp_library() -> Path:
    spec = importlib.util.find_spec("llama_cpp")
    assert spec is not None
    assert spec.submodule_search_locations
    return Path(spec.submodule_search_locations[0]) / "lib" / "libllama.so"


def test_a_broken_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusal: Callable[[], str]) -> None:
    broken = tmp_path / "libllama.so"
    broken.write_bytes(b"\x7fELF" + bytes(100))
    monkeypatch.setenv(LIBRARY, str(broken))
    message = refusal()
    assert str(broken) in message
    assert "pip install" in message


def test_a_missing_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusal: Callable[[], str]) -> None:
    monkeypatch.setenv(LIBRARY, str(tmp_path / "libllama.so"))
    assert "is no file" in refusal()


def test_another_library_of_that_name_is_refused(monkeypatch: pytest.MonkeyPatch, refusal: Callable[[], str]) -> None:
    monkeypatch.setenv(LIBRARY, str(llama_cpp_library()))
    assert "undefined symbol" in refusal()


def test_a_library_that_ends_the_process_ends_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusal: Callable[[], str]
) -> None:
    """As an instruction does that this processor lacks."""
    package = tmp_path / "ik_llama_cpp"
    package.mkdir()
    (package / "__init__.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGILL)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv(LIBRARY, str(llama_cpp_library()))  # any file that has not been loaded
    assert "another processor" in refusal()


def test_a_version_that_does_not_fit_is_refused_with_the_one_that_does(
    monkeypatch: pytest.MonkeyPatch, refusal: Callable[[], str]
) -> None:
    monkeypatch.setattr(build, "version", lambda package: "0.2.0")
    message = refusal()
    assert "0.2.0" in message
    assert build.MADE_FOR in message


def test_what_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch, refusal: Callable[[], str]) -> None:
    monkeypatch.setattr(build, "PACKAGE", "no-such-package")
    assert "pip install 'pilotfish[ik]'" in refusal()


@pytest.mark.parametrize("function", list(fitness.DEFAULTS))
def test_the_installed_one_fits_and_any_other_layout_does_not(function: str) -> None:
    described = fitness.describe()
    assert fitness.unfit(described) == ""
    for name, value in fitness.DEFAULTS[function].items():
        other = {**described, function: {**described[function], name: value + 1}}
        assert name in fitness.unfit(other)
        assert build.MADE_FOR in fitness.unfit(other)
    assert "larger" in fitness.unfit({**described, f"{function} fits": False})


def test_a_build_for_a_processor_that_is_not_here_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    described = {**fitness.describe(), "features": "AVX2 = 1 | AVX512 = 1 | BLAS = 0 | FMA = 1 | "}
    monkeypatch.setattr(fitness, "_processor_flags", lambda: "avx2 fma")
    assert "avx512f" in fitness.unfit(described)
    monkeypatch.setattr(fitness, "_processor_flags", lambda: "avx2 avx512f fma")
    assert fitness.unfit(described) == ""


def test_the_wheel_computes_on_processors_only_and_is_asked_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verifier = IkVerifier()
    verifier.fingerprint(tmp_path)
    monkeypatch.setattr(fitness, "describe", lambda: pytest.fail("looked at again"))
    assert verifier.devices() == ()


def test_a_build_that_can_have_devices_is_asked_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They come and go with drivers and the environment."""
    described = fitness.describe()
    for there in ([], ["CUDA0"]):
        monkeypatch.setattr(fitness, "describe", lambda now=there: {**described, "offloads": True, "accelerators": now})
        verifier = IkVerifier()
        verifier.fingerprint(tmp_path)
        assert verifier.devices() == tuple(there)


def test_registering_it_loads_nothing() -> None:
    code = (
        "import sys; from pilotfish.plugins.verifiers.ik import IkVerifier; IkVerifier({});"
        "sys.exit('ik_llama_cpp' in sys.modules or 'numpy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_it_computes_the_same_with_libllama_in_the_same_process(smollm2_path: Path, pin_of: PinOf) -> None:
    """Both bring a ggml with functions of the same names; a call that went to the other's would crash or differ."""
    pin, options = pin_of(smollm2_path), EngineOptions(n_ctx=256, threads=1)
    settings = {
        LlamaVerifier: EngineSetting("bf16", "f16"),
        IkVerifier: SETTING,
    }
    ids = list(range(100, 116))

    def digests(names: list[type]) -> dict[type, list[bytes]]:
        probes = {name: name().probe(pin, settings[name], 4, options) for name in names}
        found: dict[type, list[bytes]] = {name: [] for name in names}
        for at in range(0, 16, 4):  # in turns
            for name in names:
                found[name] += probes[name].rows(ids[at : at + 4], 4)
        for probe in probes.values():
            probe.close()
        return found

    together = digests([LlamaVerifier, IkVerifier])
    assert together[LlamaVerifier] != together[IkVerifier]
    for name in settings:
        assert digests([name])[name] == together[name]


def test_a_footprint_covers_what_a_long_prompt_takes(smollm2_path: Path, pin_of: PinOf) -> None:
    """In a process of its own, whose memory is not this one's. A fifth above: other allocators round up."""
    code = f"""
import psutil
from pathlib import Path
from pilotfish.hooks.types import EngineOptions, EngineSetting, Lane, SamplingParams, TargetPin, TokenizerPin, WeightPin
from pilotfish.plugins.verifiers.ik import IkVerifier
path = Path({str(smollm2_path)!r})
pin = TargetPin("m", (WeightPin("", path, path.stat().st_size),), TokenizerPin("", "gpt2", 49152))
options, lane = EngineOptions(n_ctx=2048, threads=1), Lane("x", (1, 31), {SETTING!r})
expected = IkVerifier().footprint(pin, options).total
before = psutil.Process().memory_info().rss
session = IkVerifier().load(pin, lane, options).open(list(range(100, 1000)), SamplingParams(temperature=0))
while session.prefill():
    pass
session.verify([5] * 30)
print((psutil.Process().memory_info().rss - before) / expected)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert 0.4 < float(done.stdout) < 1.2
