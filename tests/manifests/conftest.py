from pathlib import Path

import pytest

from pilotfish.manifests.store import Store
from tests.manifests.builders import smollm2_path, tiny_gguf


@pytest.fixture
def store(tmp_path) -> Store:
    return Store(tmp_path / "models")


@pytest.fixture
def tiny(tmp_path) -> Path:
    return tiny_gguf(tmp_path / "tiny.gguf")


@pytest.fixture(scope="session")
def smollm2() -> Path:
    return smollm2_path()
