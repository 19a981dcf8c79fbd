"""The tokenizer of an MLX model: its tokenizer.json, as Hugging Face's library reads it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pilotfish.hooks.errors import BrokenModel, EngineError, RequestError
from pilotfish.hooks.types import TokenizerPin
from pilotfish.manifests.tensor_layers import TensorLayers
from pilotfish.plugins._vocabularies import TOKENIZER_JSON, JSONVocabulary

_ENDS = ("generation_config.json", "config.json")  # which say where a generation ends, the better first


class MLXTokenizer:
    """An `EngineTokenizer`. Ids beyond the file's, up to the `n_vocab` rows that the model has, stand for nothing.

    BOS and EOS are added where `said` asks for them, and nowhere else. Raises EngineError or BrokenModel.
    """

    def __init__(self, layers: TensorLayers, said: TokenizerPin, n_vocab: int) -> None:
        name, path = layers.manifest.name.short, layers.file(TOKENIZER_JSON)
        if path is None:
            raise EngineError(f"{name} has no {TOKENIZER_JSON}, which its MLX engine needs; leave the model to Ollama")
        self._vocabulary = JSONVocabulary(path)  # text that looks like a special token is text there
        self._parsing = _opened(path.read_bytes(), str(path))
        self.n_vocab = n_vocab
        self._known = self._vocabulary.pin.n_vocab
        self._begin = [said.bos] if said.add_bos and said.bos is not None else []
        self._end = [said.eos] if said.add_eos and said.eos is not None else []
        self._ends = _end_ids(layers, said, n_vocab)

    def encode(self, text: str, *, add_special: bool = True, parse_special: bool = True) -> list[int]:
        """Token ids of `text`. Raises RequestError for text that has no UTF-8 form (a lone surrogate)."""
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise RequestError(f"the text is not valid Unicode ({error}); send whole characters") from error
        ids: list[int]
        if parse_special:
            ids = self._parsing.encode(text, add_special_tokens=False).ids
        else:
            ids = self._vocabulary.encode(text)
        return [*self._begin, *ids, *self._end] if add_special else ids

    def piece(self, token: int, *, special: bool = False) -> bytes:
        """The bytes `token` stands for; control tokens are empty unless `special`. Raises RequestError."""
        if not 0 <= token < self.n_vocab:
            raise RequestError(f"token id {token} is outside the vocabulary of {self.n_vocab} tokens")
        if token >= self._known or (not special and self._vocabulary.special(token)):
            return b""
        return self._vocabulary.piece(token)

    def decode(self, tokens: Sequence[int], *, special: bool = True) -> bytes:
        """The pieces of `tokens`, joined. Raises RequestError."""
        return b"".join(self.piece(token, special=special) for token in tokens)

    def end_tokens(self) -> frozenset[int]:
        """Every id that ends a generation, as the model's files say."""
        return self._ends

    def close(self) -> None:
        """Nothing to do: it knows no model."""


def _opened(data: bytes, where: str) -> Any:
    from tokenizers import Tokenizer

    try:
        return Tokenizer.from_buffer(data)
    except Exception as error:  # the library raises nothing narrower
        raise BrokenModel(f"{where} is no usable {TOKENIZER_JSON} ({error}); pull the model again") from error


def _end_ids(layers: TensorLayers, said: TokenizerPin, n_vocab: int) -> frozenset[int]:
    found = [] if said.eos is None else [said.eos]
    for name in _ENDS:
        table = layers.json(name) if layers.file(name) else {}
        nested = table.get("text_config")
        for place in (table, nested if isinstance(nested, dict) else {}):
            ids = place.get("eos_token_id")
            found += ids if isinstance(ids, list) else [ids]
    return frozenset(token for token in found if type(token) is int and 0 <= token < n_vocab)
