"""A GGUF's vocabulary alone: libllama reads the tokenizer and leaves the weights where they are."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from pilotfish.hooks.errors import BrokenModel
from pilotfish.hooks.protocols import Vocabulary
from pilotfish.hooks.types import TargetPin
from pilotfish.hooks.vocabulary import TokenizerVocabulary
from pilotfish.plugins._llama.library import last_words, lib
from pilotfish.plugins._llama.tokenizer import LlamaTokenizer


@contextmanager
def open_vocabulary(pin: TargetPin) -> Iterator[Vocabulary]:
    """The vocabulary of `pin`, until the context ends. Raises BrokenModel when libllama cannot read it."""
    params = lib.llama_model_default_params()
    params.vocab_only = True
    last_words()
    model = lib.llama_model_load_from_file(os.fsencode(pin.path), params)
    if not model:
        raise BrokenModel(f"{pin.name}: {pin.path} has no vocabulary ({last_words()}); use a complete GGUF")
    tokenizer = LlamaTokenizer(lib.llama_model_get_vocab(model))
    try:
        yield TokenizerVocabulary(tokenizer, pin.tokenizer)
    finally:
        tokenizer.close()
        lib.llama_model_free(model)
