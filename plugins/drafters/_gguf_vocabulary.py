"""The vocabulary of a GGUF file that an engine without a tokenizer of its own has loaded."""

from __future__ import annotations

import threading

from pilotfish.hooks.errors import EngineError
from pilotfish.hooks.protocols import Tokenizer
from pilotfish.hooks.types import TargetPin
from pilotfish.hooks.vocabulary import TokenizerVocabulary


class GGUFVocabulary:
    """Pinned at once; the tokenizer itself is libllama's or ik_llama.cpp's, loaded when a bridge asks for a piece.

    Between equal tokenizers none does: then the engine needs neither beside it. Raises EngineError where both are
    missing, and it or BrokenModel where the file cannot be read.
    """

    def __init__(self, pin: TargetPin) -> None:
        self.pin = pin.tokenizer
        self._file = pin
        self._opened: TokenizerVocabulary | None = None
        self._opening = threading.Lock()

    def encode(self, text: str) -> list[int]:
        return self._vocabulary().encode(text)

    def piece(self, token: int) -> bytes:
        return self._vocabulary().piece(token)

    def special(self, token: int) -> bool:
        return self._vocabulary().special(token)

    def _vocabulary(self) -> TokenizerVocabulary:
        with self._opening:
            if self._opened is None:
                self._opened = TokenizerVocabulary(_tokenizer(self._file), self.pin)
            return self._opened


def _tokenizer(pin: TargetPin) -> Tokenizer:
    """The tokenizer over the file's vocabulary alone: no weights are read. It stays for the life of the process."""
    try:
        from pilotfish.plugins._llama.library import last_words, lib, settle_log
        from pilotfish.plugins._llama.tokenizer import LlamaTokenizer
    except ImportError as error:
        return _tokenizer_of_ik(pin, error)
    settle_log()
    params = lib.llama_model_default_params()
    params.vocab_only = True
    model = lib.llama_model_load_from_file(bytes(pin.path), params)
    if not model:
        raise EngineError(f"{pin.name}: libllama cannot read the vocabulary of {pin.path}: {last_words()}")
    return LlamaTokenizer(lib.llama_model_get_vocab(model))


def _tokenizer_of_ik(pin: TargetPin, missing: ImportError) -> Tokenizer:
    from pilotfish.plugins._ik.library import open_library
    from pilotfish.plugins._ik.model import load_vocabulary, tokenizer

    try:
        library = open_library(None)
    except EngineError as error:
        raise EngineError(
            f"{pin.name}: reading its tokenizer needs libllama ({missing}) or ik_llama.cpp ({error}); "
            "install one with: pip install 'pilotfish[llama]' or 'pilotfish[ik]'"
        ) from error
    return tokenizer(library, library.lib.llama_model_get_vocab(load_vocabulary(library, pin)))
