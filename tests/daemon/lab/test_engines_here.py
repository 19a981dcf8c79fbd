"""Which engines can be measured on a machine, and what is said about the others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pilotfish.daemon.config.types import ENGINES, Config, Engine, Speculation
from pilotfish.daemon.lab.engines_here import engine_for, engines_here
from pilotfish.hooks.errors import EngineError
from pilotfish.plugins.verifiers.ik import IkVerifier
from pilotfish.plugins.verifiers.llama import LlamaVerifier


@pytest.fixture
def without(monkeypatch):
    """A machine on which these engines are not installed."""

    def remove(*names: str):
        for verifier in (LlamaVerifier, IkVerifier):

            def fingerprint(self, state_dir, name=verifier.name):
                if name in names:
                    raise EngineError(f"{name} is not installed; install it with: {ENGINES[name]}")
                return "f" * 64

            monkeypatch.setattr(verifier, "fingerprint", fingerprint)

    return remove


def test_all_that_are_installed(without):
    without()
    assert engines_here(Config()) == (["llama", "ik"], {})
    assert engines_here(Config(), ["ik"]) == (["ik"], {})


def test_one_that_is_not_is_left_out_with_its_remedy(without):
    without("llama")
    found, missing = engines_here(Config())
    assert found == ["ik"]
    assert missing == {"llama": "llama is not installed; install it with: pip install 'pilotfish[llama]'"}


def test_one_that_was_asked_for_has_to_be_there(without):
    without("llama")
    with pytest.raises(EngineError, match=r"pip install 'pilotfish\[llama\]'"):
        engines_here(Config(), ["llama", "ik"])


def test_without_any_there_is_nothing_to_measure(without):
    without("llama", "ik")
    with pytest.raises(EngineError, match=r"no engine is installed: .*\[llama\].*\[ik\]"):
        engines_here(Config())


def test_stocks_ids_come_from_stocks_engine_alone(without):
    without()
    config = Config(Speculation(parity="stock"))
    found, missing = engines_here(config)
    assert found == ["llama"]
    assert missing == {"ik": 'parity = "stock" keeps to llama'}


def test_the_configs_choice_where_it_is_there_and_any_other_where_it_is_not(without):
    chosen = replace(Config(), engine=Engine(choice="ik"))
    without()
    assert (engine_for(Config()), engine_for(chosen)) == ("llama", "ik")
    without("llama")
    assert engine_for(Config()) == "ik"
    without("ik")
    assert engine_for(chosen) == "llama"
