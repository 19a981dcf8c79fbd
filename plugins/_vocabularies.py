"""Vocabularies from the files that come with safetensors models: `tokenizer.json` and `tokenizer.model`.

They are what bridges see of a drafter that has its own tokenizer. Everything is id by id and byte by byte; how a
library would join ids into text (leading spaces dropped, replacement characters) is no part of it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pilotfish.hooks.errors import BrokenModel, EngineError, ModelNotFound, RequestError
from pilotfish.hooks.protocols import Vocabulary
from pilotfish.hooks.types import TokenizerPin
from pilotfish.plugins._byte_letters import BYTE_OF

TOKENIZER_JSON = "tokenizer.json"
SENTENCEPIECE_MODEL = "tokenizer.model"

_SPACE = "\u2581"  # how sentencepiece writes a space
_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def load_vocabulary(path: Path) -> Vocabulary:
    """The vocabulary in a tokenizer.json, in a sentencepiece model, or in the model's folder that holds either.

    Raises ModelNotFound, BrokenModel (no usable file) or EngineError (its library is not installed).
    """
    if path.is_dir():
        path = next((path / name for name in (TOKENIZER_JSON, SENTENCEPIECE_MODEL) if (path / name).is_file()), path)
    if not path.is_file():
        raise ModelNotFound(f"{path} holds no {TOKENIZER_JSON} and no {SENTENCEPIECE_MODEL}; name the model's folder")
    return JSONVocabulary(path) if path.suffix == ".json" else SentencePieceVocabulary(path)


class JSONVocabulary:
    """A tokenizer.json, encoded by the library `tokenizers`. Pieces are byte-level or as in sentencepiece."""

    def __init__(self, path: Path) -> None:
        data = path.read_bytes()
        layout = _layout(path, data)
        self._tokenizer = _open_json(path, data)
        self._tokenizer.encode_special_tokens = True  # what looks like a special token is text like any other
        added = self._tokenizer.get_added_tokens_decoder()
        self._specials = frozenset(token for token, entry in added.items() if entry.special)
        spell = _byte_level if _is_byte_level(layout) else _sentencepiece
        pieces = {token: entry.content.encode() for token, entry in added.items()}
        for piece, token in self._tokenizer.get_vocab(with_added_tokens=False).items():
            if token not in self._specials:  # Gemma's runs of spaces are added too, and written as pieces are
                pieces[token] = spell(piece)
        self._pieces = _in_order(pieces)
        fingerprint = hashlib.sha256(b"tokenizer.json\0" + data).hexdigest()
        self.pin = TokenizerPin(fingerprint, layout["model"]["type"], len(self._pieces))

    def encode(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def piece(self, token: int) -> bytes:
        return _at(self._pieces, token)

    def special(self, token: int) -> bool:
        return token in self._specials


class SentencePieceVocabulary:
    """A tokenizer.model, encoded by the `sentencepiece` library."""

    def __init__(self, path: Path) -> None:
        data = path.read_bytes()
        model = self._model = _open_sentencepiece(path, data)
        count = model.get_piece_size()
        self._specials = frozenset(i for i in range(count) if model.is_control(i) or model.is_unknown(i))
        self._pieces = tuple(
            bytes((int(model.id_to_piece(i)[1:-1], 16),)) if model.is_byte(i) else _unescaped(model.id_to_piece(i))
            for i in range(count)
        )
        bos, eos = model.bos_id(), model.eos_id()
        self.pin = TokenizerPin(
            hashlib.sha256(b"tokenizer.model\0" + data).hexdigest(),
            "sentencepiece",
            count,
            bos if bos >= 0 else None,
            eos if eos >= 0 else None,
        )

    def encode(self, text: str) -> list[int]:
        ids: list[int] = self._model.encode(text, out_type=int)
        return ids

    def piece(self, token: int) -> bytes:
        return _at(self._pieces, token)

    def special(self, token: int) -> bool:
        return token in self._specials


def _open_json(path: Path, data: bytes) -> Any:
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise EngineError(f"{path} needs the package tokenizers; install it with: pip install tokenizers") from error
    try:
        return Tokenizer.from_buffer(data)
    except Exception as error:  # the library raises nothing narrower
        raise BrokenModel(f"{path} is no usable {TOKENIZER_JSON} ({error}); fetch the model again") from error


def _open_sentencepiece(path: Path, data: bytes) -> Any:
    try:
        from sentencepiece import SentencePieceProcessor
    except ImportError as error:
        raise EngineError(
            f"{path} needs the package sentencepiece; install it with: pip install sentencepiece"
        ) from error
    try:
        return SentencePieceProcessor(model_proto=data)
    except (RuntimeError, OSError) as error:
        raise BrokenModel(f"{path} is no usable sentencepiece model ({error}); fetch the model again") from error


def _layout(path: Path, data: bytes) -> dict[str, Any]:
    """The file's JSON. Raises BrokenModel unless its pieces are written in one of the two ways known here."""
    try:
        layout: Any = json.loads(data)
    except ValueError as error:
        raise BrokenModel(f"{path} is no JSON ({error}); fetch the model again") from error
    if not isinstance(layout, dict) or not isinstance(layout.get("model"), dict) or "type" not in layout["model"]:
        raise BrokenModel(f"{path} describes no tokenizer (no model.type); fetch the model again")
    if not _is_byte_level(layout) and not _is_spaced(layout):
        raise BrokenModel(
            f"{path}: the pieces of this {layout['model']['type']} tokenizer do not spell text exactly; "
            "use a drafter with a byte-level or sentencepiece vocabulary"
        )
    return layout


def _is_byte_level(layout: Mapping[str, Any]) -> bool:
    return any(part.get("type") == "ByteLevel" for part in _parts(layout))


def _is_spaced(layout: Mapping[str, Any]) -> bool:
    """Whether pieces write a space as sentencepiece does."""
    return any(
        part.get("type") == "Metaspace" or (part.get("type") == "Replace" and part.get("content") in (_SPACE, " "))
        for part in _parts(layout)
    )


def _parts(layout: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The normalizers, pre-tokenizers and decoders, those inside of sequences too."""
    waiting = [layout.get(key) for key in ("normalizer", "pre_tokenizer", "decoder")]
    while waiting:
        part = waiting.pop()
        if isinstance(part, Mapping):
            yield part
            for key in ("normalizers", "pretokenizers", "decoders"):
                waiting.extend(part.get(key, ()))


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


def _in_order(pieces: Mapping[int, bytes]) -> tuple[bytes, ...]:
    """By id; an id that the file leaves out stands for nothing."""
    return tuple(pieces.get(token, b"") for token in range(max(pieces, default=-1) + 1))


def _at(pieces: tuple[bytes, ...], token: int) -> bytes:
    if not 0 <= token < len(pieces):
        raise RequestError(f"token id {token} is outside the vocabulary of {len(pieces)} tokens")
    return pieces[token]
