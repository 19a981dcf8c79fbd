"""What a user of the daemon has, a test's own: a home with config, state and socket, a plugin folder, a tiny model."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from pilotfish.daemon.config import files as config_file
from pilotfish.daemon.control import control_client, watcher
from tests.manifests.builders import tiny_gguf


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A plugin folder."""
    folder = tmp_path / "plugins"
    folder.mkdir(mode=0o700)
    return folder


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Not pytest's own folder: the path of a socket must be short."""
    home = Path(tempfile.mkdtemp(prefix="pf-")).resolve()
    monkeypatch.delenv("PILOTFISH_CONFIG", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "config"))
    monkeypatch.setenv("PILOTFISH_STATE", str(home / "state"))
    monkeypatch.setenv("PILOTFISH_SOCKET", str(home / "run" / "p.sock"))
    monkeypatch.setenv("OLLAMA_MODELS", str(home / "models"))
    monkeypatch.setattr(config_file, "SYSTEM_FILE", home / "etc" / "pilotfish.toml")
    monkeypatch.setattr(watcher, "QUIET", 0.02)
    monkeypatch.setattr(control_client, "LAST_RETRY", 0.1)
    yield home
    shutil.rmtree(home)


@pytest.fixture
def socket(home: Path) -> Path:
    """Where the daemon listens."""
    return home / "run" / "p.sock"


@pytest.fixture
def config(home: Path) -> Path:
    """The user's config file, whose folder is there."""
    (home / "config" / "pilotfish").mkdir(parents=True)
    return home / "config" / "pilotfish" / "pilotfish.toml"


@pytest.fixture
def tiny(home: Path) -> Path:
    """A GGUF file of a few hundred bytes."""
    return tiny_gguf(home / "tiny.gguf")
