"""`pilotfish pair` on SmolLM2 and tokenizers beside it."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from sentencepiece import SentencePieceTrainer

from pilotfish.daemon.cli import cli
from pilotfish.daemon.drafters import memory_budget
from pilotfish.daemon.drafters.memory_bounds import Bound
from pilotfish.hooks.errors import BrokenModel, ModelNotFound
from pilotfish.hooks.sample_text import SAMPLE

pytestmark = pytest.mark.model


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, folder in (("PILOTFISH_STATE", "state"), ("XDG_CONFIG_HOME", "config"), ("OLLAMA_MODELS", "models")):
        monkeypatch.setenv(name, str(tmp_path / folder))
    return tmp_path


@pytest.fixture
def tokenizer_model(tmp_path: Path) -> Path:
    model = io.BytesIO()
    SentencePieceTrainer.train(
        sentence_iterator=iter(SAMPLE.splitlines()),
        model_writer=model,
        vocab_size=700,
        model_type="bpe",
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        minloglevel=2,
    )
    (tmp_path / "tokenizer.model").write_bytes(model.getvalue())
    return tmp_path / "tokenizer.model"


def pair(*words: object, code: int) -> str:
    result = CliRunner(env={"COLUMNS": "200"}).invoke(cli, ["pair", *map(str, words)], catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result.stdout


def pair_json(*words: object, code: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(pair(*words, "--json", code=code))
    return found


def test_a_model_with_itself(smollm2_path: Path) -> None:
    found = pair_json(smollm2_path, smollm2_path, "--context", 2048, code=1)
    assert found["bridge"] == "identity"
    assert found["text_coverage"] == 1.0
    assert found["mapped"] == found["target_vocab"] == found["drafter_vocab"] == 49152
    assert found["unmapped"] == []
    memory = found["memory"]
    assert memory["target"] == memory["drafter"]
    assert memory["target"]["weights"] == smollm2_path.stat().st_size
    assert memory["target"]["cache"] >= 30 * 3 * 64 * 2 * 2 * 2048  # layers, heads, size, key and value, bytes, cells
    assert memory["needed"] == 2 * (memory["target"]["weights"] + memory["target"]["cache"])
    assert found["usable"] is False
    assert "would cost 100% of a plain step" in found["reason"]


def test_a_drafter_that_does_not_fit_is_refused_with_the_sum(
    smollm2_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_budget, "bounds_for", lambda *_: [Bound("the box", 100 << 20, 512 << 20, lends=True)])
    found = pair_json(smollm2_path, smollm2_path, code=1)
    assert found["memory"]["fits"] is False
    assert "does not fit: weights 94 MiB" in found["reason"]
    assert "of the box (512 MiB) 100 MiB are available" in found["reason"]


def test_a_tokenizer_of_another_family(smollm2_path: Path, tokenizer_model: Path) -> None:
    found = pair_json(smollm2_path, tokenizer_model, code=0)
    assert found["bridge"] == "retokenize"
    assert 0.1 < found["text_coverage"] < 0.9
    assert 256 <= found["mapped"] < 2_000
    assert found["drafter_vocab"] == 700
    assert len(found["unmapped"]) == 12
    assert found["memory"]["drafter"] is None
    assert "the drafter's weights are not known here" in found["reason"]


def test_for_people_it_says_the_same(smollm2_path: Path, tokenizer_model: Path) -> None:
    shown = pair(smollm2_path, tokenizer_model, code=0)
    for part in (
        "bridge: retokenize",
        "of the target's 49,152 ids",
        "unknown to the drafter",
        "verdict: yes, text is cut",
    ):
        assert part in shown
    assert "verdict: no, a token drafted here would cost 100%" in pair(smollm2_path, smollm2_path, code=1)


@pytest.mark.parametrize(
    ("drafter", "error"),
    [("nothing/tokenizer.json", ModelNotFound), ("absent", ModelNotFound), ("x.gguf", BrokenModel)],
)
def test_what_is_not_there_is_named(smollm2_path: Path, home: Path, drafter: str, error: type[Exception]) -> None:
    (home / "x.gguf").write_bytes(b"GGUF no model")
    given = str(home / drafter) if "." in drafter else drafter
    with pytest.raises(error, match=drafter.partition("/")[0]):
        pair(smollm2_path, given, code=1)
