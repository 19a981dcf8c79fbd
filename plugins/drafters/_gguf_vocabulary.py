"""The vocabulary of a GGUF file that an engine other than libllama has loaded."""

from __future__ import annotations

import threading

from pilotfish.hooks.errors import EngineError
from pilotfish.hooks.protocols import Tokenizer
from pilotfish.hooks.types import TargetPin
from pilotfish.hooks.vocabulary import TokenizerVocabulary


class GGUFVocabulary:
    """Pinned at once; the tokenizer itself comes from libllama, and only when a bridge asks for a piece.

    Between equal tokenizers none does: then the engine needs no libllama beside it. Raises EngineError where libllama
    is missing or cannot read the file.
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
    """libllama's tokenizer over the file's vocabulary alone: no weights are read."""
    try:
        from pilotfish.plugins._llama.library import last_words, lib, settle_log
        from pilotfish.plugins._llama.tokenizer import LlamaTokenizer
    except ImportError as error:
        raise EngineError(
            f"{pin.name}: reading its tokenizer needs libllama ({error}); "
            "install it with: pip install 'pilotfish[llama]'"
        ) from error
    settle_log()
    params = lib.llama_model_default_params()
    params.vocab_only = True
    model = lib.llama_model_load_from_file(bytes(pin.path), params)
    if not model:
        raise EngineError(f"{pin.name}: libllama cannot read the vocabulary of {pin.path}: {last_words()}")
    return LlamaTokenizer(lib.llama_model_get_vocab(model))  # the vocabulary stays for the life of the process
