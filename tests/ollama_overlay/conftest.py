"""A store with one model, and the decision about a launch of it."""

from __future__ import annotations

import pytest

from pilotfish.daemon.config import files as configuration
from pilotfish.daemon.config.reader import parse
from pilotfish.manifests.store import Store
from pilotfish.ollama_overlay.decision import decide
from tests.manifests.builders import tiny_gguf
from tests.ollama_overlay.launches import launch


@pytest.fixture
def store(tmp_path):
    weights = tmp_path / "weights.gguf"
    tiny_gguf(weights)
    store = Store(tmp_path / "models")
    store.add_gguf("tiny:1b", weights)
    return store


@pytest.fixture
def blob(store):
    return store.blob(store.manifest("tiny:1b").weights[0])


@pytest.fixture
def state(tmp_path):
    return tmp_path / "state"


@pytest.fixture
def deciding(blob, state):
    def decided(*more, config="", packages=("llama_cpp", "ik_llama_cpp"), argv=None):
        parsed = parse(configuration.tomli.loads(config))
        return decide(argv or launch(blob, *more), state, lambda: parsed, packages.__contains__)

    return decided
