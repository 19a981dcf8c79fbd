"""`pilotfish import-mlx`: a folder becomes a model, and takes nobody's place unasked."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from pilotfish.daemon.cli import main
from pilotfish.manifests import manifest as media
from pilotfish.manifests.store import Store
from tests.manifests.builders import safetensors_of


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "model"
    path.mkdir()
    (path / "config.json").write_text(json.dumps({"model_type": "llama"}))
    (path / "model.safetensors").write_bytes(safetensors_of({"a": ("F16", np.zeros(3, np.float16))}))
    return path


def imported(tmp_path: Path, *arguments: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    with pytest.raises(SystemExit) as ended:
        main(["import-mlx", "--models", str(tmp_path / "store"), *arguments])
    shown = capsys.readouterr()
    return int(ended.value.code or 0), shown.out + shown.err


def test_it_is_in_the_store_with_its_template(folder, tmp_path, capsys):
    (tmp_path / "template").write_text("{{ .Prompt }}")
    code, shown = imported(tmp_path, str(folder), "m", "--template", str(tmp_path / "template"), capsys=capsys)
    assert (code, "m:latest is in" in shown) == (0, True)
    store = Store(tmp_path / "store")
    assert store.text(store.manifest("m"), media.TEMPLATE) == "{{ .Prompt }}"


def test_a_model_of_that_name_stays_unless_it_is_to_be_replaced(folder, tmp_path, capsys):
    imported(tmp_path, str(folder), "m", capsys=capsys)
    code, shown = imported(tmp_path, str(folder), "m", capsys=capsys)
    assert code == 1
    assert "there is a model m:latest" in shown
    assert "--replace" in shown
    assert imported(tmp_path, str(folder), "m", "--replace", capsys=capsys)[0] == 0


def test_what_is_wrong_is_one_line(folder, tmp_path, capsys):
    (folder / "model.safetensors").unlink()
    code, shown = imported(tmp_path, str(folder), "m", capsys=capsys)
    assert code == 1
    assert shown.count("\n") == 1
    assert "holds no model*.safetensors" in shown
