"""Vocabularies without weights: what bridges and `pilotfish pair` look at."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pilotfish.hooks.errors import BrokenModel, EngineError
from pilotfish.hooks.protocols import Vocabulary
from pilotfish.hooks.types import TargetPin
from pilotfish.hooks.vocabulary import TokenizerVocabulary
from tests.engines import VERIFIERS

if TYPE_CHECKING:
    from pilotfish.plugins._cells.engine import CellEngine

pytestmark = pytest.mark.model

PinOf = Callable[[Path], TargetPin]


def test_it_is_the_loaded_models_own(engine: CellEngine, smollm2_path: Path, pin_of: PinOf, verifier: str) -> None:
    pin = pin_of(smollm2_path)
    loaded = TokenizerVocabulary(engine.tokenizer, pin.tokenizer)
    with VERIFIERS[verifier]().vocabulary(pin) as alone:
        assert isinstance(alone, Vocabulary)
        assert alone.pin == pin.tokenizer
        text = "Hello, wörld <|im_end|>\n"
        assert alone.encode(text) == loaded.encode(text)
        for token in range(0, pin.tokenizer.n_vocab, 97):
            assert alone.piece(token) == loaded.piece(token)
            assert alone.special(token) == loaded.special(token)


def test_it_ends_with_its_context(smollm2_path: Path, pin_of: PinOf, verifier: str) -> None:
    with VERIFIERS[verifier]().vocabulary(pin_of(smollm2_path)) as vocabulary:
        pass
    with pytest.raises(EngineError, match="closed"):
        vocabulary.encode("x")


def test_a_file_without_one_is_refused_by_name(tmp_path: Path, pin_of: PinOf, verifier: str) -> None:
    path = tmp_path / "empty.gguf"
    path.write_bytes(b"GGUF")
    with (
        pytest.raises(BrokenModel, match=r"empty\.gguf has no vocabulary"),
        VERIFIERS[verifier]().vocabulary(pin_of(path)),
    ):
        pass
