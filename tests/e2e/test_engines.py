"""The engine that the config chooses computes under a real Ollama, too."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.ollama_server import MODEL, serving
from tests.fakes.bare_package import bare_llama_cpp

pytestmark = [pytest.mark.model, pytest.mark.ollama]

COPY = "Repeat this line three times: apple, pear, plum, cherry, apple, pear, plum, cherry."


def answer(binary: Path, folder: Path, models: Path, text: str) -> tuple[list[int], dict]:
    """The ids of a greedy answer under a config that says `text`, and what the runner says of itself."""
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "pilotfish.toml"
    config.write_text(text)
    with serving(binary, folder, models, {"PILOTFISH_CONFIG": str(config)}) as server:
        said = server.client.generate(MODEL, COPY, options={"temperature": 0, "num_predict": 40})
        return list(said.context), server.runner().get("/pilotfish/explain").json()


def test_ik_computes_and_its_ids_do_not_depend_on_drafts(overlay: Path, folder: Path, models: Path) -> None:
    engine = '[engine]\nchoice = "ik"\n'
    ids, about = answer(overlay, folder / "ik", models, engine)
    assert about["lane"]["name"].startswith("ik: ")
    plain, about = answer(overlay, folder / "ik-plain", models, f"{engine}[drafters]\norder = []\n")
    assert about["lane"]["name"].startswith("ik: ")
    assert ids == plain


def test_a_package_without_libraries_computes_on_those_of_ollama(
    ollama_binary: Path, overlay: Path, folder: Path, models: Path, tmp_path: Path
) -> None:
    config = tmp_path / "pilotfish.toml"
    config.write_text('[engine]\nchoice = "llama"\n')
    environment = {"PILOTFISH_CONFIG": str(config), **bare_llama_cpp(tmp_path)}
    with serving(overlay, folder / "without-libraries", models, environment) as server:
        said = server.client.generate(MODEL, COPY, options={"temperature": 0, "num_predict": 8})
        decision = server.decisions()[-1]
        lane = server.runner().get("/pilotfish/explain").json()["lane"]
    assert said.response
    assert decision["decision"] == "runner", decision
    assert f"with the libllama in {ollama_binary.resolve().parents[1] / 'lib' / 'ollama'}" in decision["reason"]
    assert lane["name"]
    assert not lane["name"].startswith("ik: ")
