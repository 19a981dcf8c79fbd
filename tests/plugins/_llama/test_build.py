"""What can be told of libllama without loading it: whether it is there, which build it is, and its accelerators."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from pilotfish.hooks.errors import EngineError, EngineMissing
from pilotfish.plugins._llama.build import devices, expected_folder
from pilotfish.plugins.verifiers.llama import LlamaVerifier

LIBRARY = "LLAMA_CPP_LIB_PATH"


@pytest.mark.parametrize("named", [True, False])
def test_without_its_package_it_is_missing_wherever_libraries_lie(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, named: bool
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    if named:
        monkeypatch.setenv(LIBRARY, str(tmp_path))
    with pytest.raises(EngineMissing, match=r"pip install 'pilotfish\[llama\]'"):
        LlamaVerifier().fingerprint(None)


@pytest.mark.model
@pytest.mark.parametrize("there", [True, False])
def test_a_folder_without_it_is_named_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, there: bool
) -> None:
    folder = tmp_path if there else tmp_path / "gone"
    monkeypatch.setenv(LIBRARY, str(folder))
    with pytest.raises(EngineError, match=LIBRARY) as caught:
        LlamaVerifier().fingerprint(None)
    assert str(folder) in str(caught.value)


@pytest.mark.model
def test_a_build_for_processors_alone_has_no_accelerators_and_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("subprocess.run", lambda *arguments, **options: pytest.fail("it was asked"))
    assert devices(expected_folder()) == ()


@pytest.mark.model
def test_one_with_another_backend_is_asked_in_a_process_of_its_own(tmp_path: Path) -> None:
    from pilotfish.plugins._llama.devices import accelerators

    (tmp_path / "libggml-cuda.so").touch()
    assert devices(tmp_path) == accelerators()  # those of the library that is installed


@pytest.mark.model
def test_one_that_cannot_be_asked_is_an_error_with_the_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "libggml-cuda.so").touch()
    monkeypatch.setenv(LIBRARY, str(tmp_path))
    with pytest.raises(EngineError, match=f"{tmp_path}.*{LIBRARY}"):
        devices(tmp_path)
