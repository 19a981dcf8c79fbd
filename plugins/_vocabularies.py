"""Vocabularies from the files that come with safetensors models: `tokenizer.json` and `tokenizer.model`.

They are what bridges see of a model that has its own tokenizer, and what encodes the prompts of such a target.
Everything is id by id and byte by byte; how a library would join ids into text (leading spaces dropped, replacement
characters) is no part of it.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pilotfish.hooks.errors import BrokenModel, EngineError, ModelNotFound, RequestError
from pilotfish.manifests.tensor_layers import TensorLayers
from pilotfish.manifests.tensor_tokenizer import tokenizer_file, tokenizer_settings
from pilotfish.manifests.tokenizer_files import (
    SENTENCEPIECE_MODEL,
    TOKENIZER_CONFIG,
    TOKENIZER_JSON,
    TokenizerSettings,
    is_byte_level,
    open_sentencepiece,
    parts,
    pin_sentencepiece,
    pin_tokenizer_json,
    read_layout,
)
from pilotfish.plugins._byte_letters import BYTE_OF

_SPACE = "\u2581"  # how sentencepiece writes a space
_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def load_vocabulary(path: Path) -> JSONVocabulary | SentencePieceVocabulary:
    """The vocabulary in a tokenizer.json, in a sentencepiece model, or in the model's folder that holds either.

    Raises ModelNotFound, BrokenModel (no usable file) or EngineError (its library is not installed).
    """
    if path.is_dir():
        path = next((path / name for name in (TOKENIZER_JSON, SENTENCEPIECE_MODEL) if (path / name).is_file()), path)
    if not path.is_file():
        raise ModelNotFound(f"{path} holds no {TOKENIZER_JSON} and no {SENTENCEPIECE_MODEL}; name the model's folder")
    settings = TokenizerSettings(*(_object(path.parent / name) for name in (TOKENIZER_CONFIG, "config.json")))
    kind = JSONVocabulary if path.suffix == ".json" else SentencePieceVocabulary
    return kind(path, settings)


def layers_vocabulary(layers: TensorLayers) -> JSONVocabulary | SentencePieceVocabulary:
    """The vocabulary among the layers of an MLX model. Raises as `load_vocabulary` does."""
    path, settings = tokenizer_file(layers), tokenizer_settings(layers)
    if path is None:
        what = f"holds no {TOKENIZER_JSON} and no {SENTENCEPIECE_MODEL}"
        raise ModelNotFound(f"{layers.manifest.name} {what}; pull the model again, or import its folder again")
    kind = JSONVocabulary if path == layers.file(TOKENIZER_JSON) else SentencePieceVocabulary
    return kind(path, settings)


class JSONVocabulary:
    """A tokenizer.json, encoded by the library `tokenizers`. Pieces are byte-level or as in sentencepiece."""

    def __init__(self, path: Path, settings: TokenizerSettings) -> None:
        data = path.read_bytes()
        layout = _layout(path, data)
        self._tokenizer = _open_json(path, data)
        self._setting = threading.Lock()  # how special tokens are read is the library's state
        added = self._tokenizer.get_added_tokens_decoder()
        self._specials = frozenset(token for token, entry in added.items() if entry.special)
        spell = _byte_level if is_byte_level(layout) else _sentencepiece
        pieces = {token: entry.content.encode() for token, entry in added.items()}
        for piece, token in self._tokenizer.get_vocab(with_added_tokens=False).items():
            if token not in self._specials:  # Gemma's runs of spaces are added too, and written as pieces are
                pieces[token] = spell(piece)
        self.pin = pin_tokenizer_json(layout, settings, str(path))
        self._pieces = _in_order(pieces, self.pin.n_vocab)

    def encode(self, text: str, *, parse_special: bool = False) -> list[int]:
        """Ids of text; what looks like a special token is one with `parse_special`, and else text like any other."""
        with self._setting:
            self._tokenizer.encode_special_tokens = not parse_special
            ids: list[int] = self._tokenizer.encode(_whole(text), add_special_tokens=False).ids
        return ids

    def piece(self, token: int) -> bytes:
        return _at(self._pieces, token)

    def special(self, token: int) -> bool:
        return token in self._specials


class SentencePieceVocabulary:
    """A tokenizer.model, encoded by the `sentencepiece` library."""

    def __init__(self, path: Path, settings: TokenizerSettings) -> None:
        model = self._model = open_sentencepiece(path.read_bytes(), str(path))
        count = model.get_piece_size()
        self._specials = frozenset(i for i in range(count) if model.is_control(i) or model.is_unknown(i))
        self._ids = {model.id_to_piece(i): i for i in self._specials}
        self._named = re.compile(f"({'|'.join(map(re.escape, self._ids))})")
        self.pin = pin_sentencepiece(model, settings)
        pieces = {
            i: bytes((int(model.id_to_piece(i)[1:-1], 16),)) if model.is_byte(i) else _unescaped(model.id_to_piece(i))
            for i in range(count)
        }
        self._pieces = _in_order(pieces, self.pin.n_vocab)

    def encode(self, text: str, *, parse_special: bool = False) -> list[int]:
        """Ids of text; what looks like a special token is one with `parse_special`, and else text like any other."""
        ids: list[int] = []
        for part in self._named.split(_whole(text)) if parse_special else [_whole(text)]:
            token = self._ids.get(part) if parse_special else None
            ids += self._model.encode(part, out_type=int) if token is None else [token]
        return ids

    def piece(self, token: int) -> bytes:
        return _at(self._pieces, token)

    def special(self, token: int) -> bool:
        return token in self._specials


class FileTokenizer:
    """A `Tokenizer` made of either: the prompts of a target are encoded by it.

    `add_special` adds BOS and EOS as the vocabulary's pin says. `encode` raises RequestError for text without a UTF-8
    form.
    """

    def __init__(self, vocabulary: JSONVocabulary | SentencePieceVocabulary) -> None:
        self.vocabulary = vocabulary

    def encode(self, text: str, *, add_special: bool = True, parse_special: bool = True) -> list[int]:
        ids = self.vocabulary.encode(text, parse_special=parse_special)
        pin = self.vocabulary.pin
        begin = [pin.bos] if add_special and pin.add_bos and pin.bos is not None else []
        end = [pin.eos] if add_special and pin.add_eos and pin.eos is not None else []
        return [*begin, *ids, *end]

    def piece(self, token: int, *, special: bool = False) -> bytes:
        found = self.vocabulary.piece(token)
        return found if special or not self.vocabulary.special(token) else b""

    def decode(self, tokens: Sequence[int], *, special: bool = True) -> bytes:
        return b"".join(self.piece(token, special=special) for token in tokens)


def _whole(text: str) -> str:
    """The text itself. Raises RequestError for a lone surrogate, which the libraries stop at in their own ways."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise RequestError(f"the text is not valid Unicode ({error}); send whole characters") from error
    return text


def _open_json(path: Path, data: bytes) -> Any:
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise EngineError(f"{path} needs the package tokenizers; install it with: pip install tokenizers") from error
    try:
        return Tokenizer.from_buffer(data)
    except Exception as error:  # the library raises nothing narrower
        raise BrokenModel(f"{path} is no usable {TOKENIZER_JSON} ({error}); fetch the model again") from error


def _layout(path: Path, data: bytes) -> dict[str, Any]:
    """The file's JSON. Raises BrokenModel unless its pieces are written in one of the two ways known here."""
    layout = read_layout(data, str(path))
    if not is_byte_level(layout) and not _is_spaced(layout):
        raise BrokenModel(
            f"{path}: the pieces of this {layout['model']['type']} tokenizer do not spell text exactly; "
            "use a drafter with a byte-level or sentencepiece vocabulary"
        )
    return layout


def _is_spaced(layout: Mapping[str, Any]) -> bool:
    """Whether pieces write a space as sentencepiece does."""
    return any(
        part.get("type") == "Metaspace" or (part.get("type") == "Replace" and part.get("content") in (_SPACE, " "))
        for part in parts(layout, "normalizer", "pre_tokenizer", "decoder")
    )


def _byte_level(piece: str) -> bytes:
    try:
        return bytes(BYTE_OF[character] for character in piece)
    except KeyError:  # an entry that was added without the byte alphabet
        return piece.encode()


def _sentencepiece(piece: str) -> bytes:
    byte = _BYTE.fullmatch(piece)
    return bytes((int(byte[1], 16),)) if byte else _unescaped(piece)


def _unescaped(piece: str) -> bytes:
    return piece.replace(_SPACE, " ").encode()


def _in_order(pieces: Mapping[int, bytes], count: int) -> tuple[bytes, ...]:
    """By id; an id that the file leaves out stands for nothing."""
    return tuple(pieces.get(token, b"") for token in range(count))


def _object(path: Path) -> Mapping[str, Any]:
    """A JSON file's object, empty where there is none that can be read."""
    try:
        table = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return table if isinstance(table, dict) else {}


def _at(pieces: tuple[bytes, ...], token: int) -> bytes:
    if not 0 <= token < len(pieces):
        raise RequestError(f"token id {token} is outside the vocabulary of {len(pieces)} tokens")
    return pieces[token]
