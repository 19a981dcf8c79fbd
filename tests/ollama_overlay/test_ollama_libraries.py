"""Whether another build's libllama may be loaded with the package's structures."""

from __future__ import annotations

import ctypes
import platform
import subprocess
from copy import deepcopy
from pathlib import Path

import pytest

from pilotfish.hooks import structures
from pilotfish.ollama_overlay import ollama_libraries
from pilotfish.ollama_overlay.known_abi import DESCRIBED, MADE_FOR
from pilotfish.ollama_overlay.ollama_libraries import choose, compare, describe, unfit

pytestmark = pytest.mark.model  # needs libllama


@pytest.fixture(scope="module")
def ours():
    described = describe()
    assert described is not None
    return described


@pytest.fixture(scope="module")
def bundled():
    import llama_cpp

    return Path(llama_cpp.__file__).parent / "lib"


def test_what_is_known_of_the_package_is_what_its_own_library_says(ours, bundled, tmp_path):
    assert ours == DESCRIBED
    assert unfit(bundled, tmp_path) == ""


def test_another_version_of_the_package_is_not_guessed_at(bundled, tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.metadata.version", lambda name: "0.3.1")
    assert unfit(bundled, tmp_path) == f"llama-cpp-python 0.3.1 is installed, but only {MADE_FOR} is known to fit"


class TestChoice:
    """Whose libllama is loaded; `bundled` stands for Ollama's, because it fits."""

    @pytest.fixture
    def without_libraries(self, monkeypatch):
        """The package as `CMAKE_ARGS=-DLLAMA_BUILD=OFF` installs it."""
        monkeypatch.setattr(ollama_libraries, "has_own_library", lambda: False)

    def test_the_packages_own_unless_the_config_says_otherwise(self, bundled, tmp_path):
        own = choose("bundled", tmp_path / "not looked at", tmp_path)
        assert (own.usable, own.ollama) == (True, False)
        assert choose("ollama", bundled, tmp_path).ollama

    def test_ollamas_where_the_package_has_none(self, bundled, tmp_path, without_libraries):
        found = choose("bundled", bundled, tmp_path)
        assert (found.usable, found.ollama) == (True, True)
        assert str(bundled) in found.remark

    def test_one_that_does_not_fit_is_not_taken(self, tmp_path, without_libraries, monkeypatch):
        found = choose("bundled", tmp_path, tmp_path)
        assert not found.usable
        assert f"no libllama in {tmp_path}" in found.remark
        assert "pip install --force-reinstall" in found.remark
        monkeypatch.undo()
        own = choose("ollama", tmp_path, tmp_path)
        assert (own.usable, own.ollama) == (True, False)
        assert "does not fit" in own.remark


def test_a_changed_default_is_named(ours):
    theirs = deepcopy(ours)
    theirs["llama_context_default_params"]["n_batch"] += 1
    assert "n_batch" in compare(theirs, ours)


def test_a_larger_structure_is_named(ours):
    theirs = {**ours, "llama_model_default_params fits": False}
    assert compare(theirs, ours) == "llama_model_default_params: its structure is larger"


@pytest.mark.skipif(platform.machine() != "x86_64", reason="elsewhere the place of a returned structure is no argument")
def test_a_structure_that_is_described_too_short_is_seen():
    from llama_cpp import llama_cpp as lib

    whole = lib.llama_context_params

    class Shorter(ctypes.Structure):
        _fields_ = whole._fields_[:-4]

    assert structures.fits(lib._lib, "llama_context_default_params", whole)
    assert not structures.fits(lib._lib, "llama_context_default_params", Shorter)


@pytest.mark.parametrize(
    ("version", "fits"),
    [("0.5.0-dev", True), ("0.6.1", True), ("0.4.9", False), ("1.0.0", False), ("", False), ("b11434", False)],
)
def test_versions_may_be_newer_but_not_of_another_kind(ours, version, fits):
    assert (compare({**ours, "version": version}, {**ours, "version": "0.5.0-dev"}) == "") is fits


def test_a_library_that_is_none_does_not_fit(tmp_path):
    folder = tmp_path / "lib"
    folder.mkdir()
    assert "no libllama" in unfit(folder, tmp_path)
    (folder / "libllama.so").write_bytes(b"not a library")
    assert "cannot be loaded" in unfit(folder, tmp_path)


def test_the_verdict_is_remembered_a_timeout_is_not(bundled, tmp_path, monkeypatch):
    def too_slow(*args, **kwargs):
        raise subprocess.TimeoutExpired("abi", 2)

    with monkeypatch.context() as patched:
        patched.setattr(ollama_libraries, "describe", too_slow)
        assert "took more than" in unfit(bundled, tmp_path)
    assert unfit(bundled, tmp_path) == ""
    monkeypatch.setattr(ollama_libraries, "describe", too_slow)
    assert unfit(bundled, tmp_path) == ""
