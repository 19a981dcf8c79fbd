"""A real Ollama, stock and overlaid, on a store that holds SmolLM2 with and without a template.

Where the tests are selected (marker `ollama`) and no Ollama is there, they fail: nothing is skipped.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pilotfish.manifests.names import ModelName
from pilotfish.manifests.store import Store
from pilotfish.ollama_overlay import tree
from tests.e2e.ollama_server import BARE, CONTEXT, MODEL, SAME_KERNELS, OllamaServer, serving
from tests.manifests.builders import smollm2_path as packaged_smollm2

INSTALLED = Path(__file__).resolve().parents[2] / ".cache" / "ollama" / "bin" / "ollama"  # by `make ollama`
TEMPLATE = """{{- range .Messages }}<|im_start|>{{ .Role }}
{{ .Content }}<|im_end|>
{{ end }}<|im_start|>assistant
"""
PARAMETERS = {"stop": ["<|im_start|>", "<|im_end|>"], "num_ctx": CONTEXT}


@pytest.fixture(scope="session")
def ollama_binary() -> Path:
    """The user's own Ollama, so to say."""
    binary = Path(os.environ.get("PILOTFISH_TEST_OLLAMA") or INSTALLED)
    assert binary.is_file(), f"no Ollama at {binary}: run `make ollama`, or set PILOTFISH_TEST_OLLAMA"
    return binary


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for everything: on one file system, so that hard links work."""
    return tmp_path_factory.mktemp("e2e")


@pytest.fixture(scope="session")
def overlay(ollama_binary: Path, folder: Path) -> Path:
    """The overlay's `ollama`."""
    prefix = folder / "overlay"
    tree.install(prefix, ollama_binary, folder / "install-state")
    return prefix / tree.BINARY


@pytest.fixture(scope="session")
def models(ollama_binary: Path, folder: Path) -> Path:
    """A store: `ollama create` makes MODEL from a Modelfile; BARE gets the same weights and no template.

    Ollama gives a template of its own to a GGUF whose chat template it knows, as it does with SmolLM2's; so a model
    without one is written directly.
    """
    store = folder / "models"
    parameters = "".join(f"PARAMETER stop {stop}\n" for stop in PARAMETERS["stop"]) + f"PARAMETER num_ctx {CONTEXT}\n"
    modelfile = folder / "Modelfile"
    modelfile.write_text(f'FROM {packaged_smollm2()}\nTEMPLATE """{TEMPLATE}"""\n{parameters}')
    with serving(ollama_binary, folder / "creating", store) as server:
        environment = {**os.environ, "OLLAMA_HOST": server.url}
        command = [str(ollama_binary), "create", MODEL, "-f", str(modelfile)]
        made = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert made.returncode == 0, made.stderr
    Store(store).add_gguf(ModelName.parse(BARE), packaged_smollm2(), params=PARAMETERS)
    return store


@pytest.fixture(scope="session")
def stock(ollama_binary: Path, folder: Path, models: Path) -> Iterator[OllamaServer]:
    """Ollama as it is."""
    with serving(ollama_binary, folder / "stock", models, SAME_KERNELS) as server:
        yield server


@pytest.fixture(scope="session")
def overlaid(overlay: Path, folder: Path, models: Path) -> Iterator[OllamaServer]:
    """Ollama from the overlaid tree."""
    with serving(overlay, folder / "overlaid", models, SAME_KERNELS) as server:
        yield server


@pytest.fixture(scope="session")
def javascript() -> Callable[..., Any]:
    """`javascript(server, call, request, leave_after=n)`: what the official JavaScript client gets."""
    installed = INSTALLED.parents[2] / "npm"
    folder = Path(os.environ.get("PILOTFISH_TEST_NPM") or installed)
    assert (folder / "node_modules" / "ollama").is_dir(), f"no JavaScript client in {folder}: run `make npm`"

    def ask(server: OllamaServer, call: str, request: dict[str, Any], leave_after: int | None = None) -> Any:
        asked = json.dumps({"call": call, "request": request, "leaveAfter": leave_after})
        command = ["node", Path(__file__).with_name("client.mjs"), folder, server.url, asked]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return ask
