"""A GGUF's vocabulary alone: ik_llama.cpp reads the tokenizer and leaves the weights where they are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pilotfish.hooks.protocols import Vocabulary
from pilotfish.hooks.types import TargetPin
from pilotfish.hooks.vocabulary import TokenizerVocabulary
from pilotfish.plugins._ik.library import Library
from pilotfish.plugins._ik.model import load_vocabulary, tokenizer


@contextmanager
def open_vocabulary(library: Library, pin: TargetPin) -> Iterator[Vocabulary]:
    """The vocabulary of `pin`, until the context ends. Raises BrokenModel when the library cannot read it."""
    model = load_vocabulary(library, pin)
    found = tokenizer(library, library.lib.llama_model_get_vocab(model))
    try:
        yield TokenizerVocabulary(found, pin.tokenizer)
    finally:
        found.close()
        library.lib.llama_free_model(model)
