"""The fingerprint of the tokenizer that comes with a safetensors model, comparable with that of a GGUF.

The files are put into the words of the GGUF that llama.cpp would convert them to, and those are hashed. Equal
fingerprints mean what they mean between two GGUFs. For a byte-level `tokenizer.json` whose way of cutting text has a
name here, and for a `tokenizer.model`, such a GGUF has the same; other ones are only equal to their own kind.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pilotfish.hooks.errors import BrokenModel, EngineError
from pilotfish.hooks.types import TokenizerPin
from pilotfish.manifests.gguf_header import Value
from pilotfish.manifests.manifest import json_object
from pilotfish.manifests.tensor_words import number_in
from pilotfish.manifests.tokenizer import DEFAULT_PRE, TokenizerFacts

FORMAT = 1  # counted up when what enters the fingerprint changes
TOKENIZER_JSON = "tokenizer.json"
MAX_VOCAB = 1 << 24  # ids; the largest vocabulary known has 0.3 million
SENTENCEPIECE_MODEL = "tokenizer.model"
TOKENIZER_CONFIG = "tokenizer_config.json"

_NORMAL, _UNKNOWN, _CONTROL, _ADDED, _UNUSED, _BYTE = range(1, 7)  # token types of a GGUF
_LOOKS_SPECIAL = re.compile(r"<\|.*\|>|<｜.*｜>")  # added by models that forgot to say that they are special
_KINDS = {"bos": "bos", "eos": "eos", "unk": "unknown", "sep": "separator", "pad": "padding", "cls": "cls"}
_KINDS["mask"] = "mask"
_FLAGS = ("add_bos_token", "add_eos_token")
_WORDS = (
    r"split (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_CUTS = {  # how text is cut before bytes are paired, by llama.cpp's name for it
    ("bytes",): "gpt-2",
    ("digits", "bytes"): "smollm",
    (_WORDS % r"\p{N}{1,3}", "plain bytes", "whole words"): "llama-bpe",
    ("NFC", _WORDS % r"\p{N}", "plain bytes"): "qwen2",
}


@dataclass(frozen=True, slots=True)
class TokenizerSettings:
    """What stands beside a tokenizer: its `tokenizer_config.json` and the model's `config.json`, empty where absent."""

    tokenizer: Mapping[str, Any] = field(default_factory=dict)
    model: Mapping[str, Any] = field(default_factory=dict)

    @property
    def n_vocab(self) -> int:
        """Rows of the model's embedding, which may be more than the tokenizer has ids."""
        count = number_in(self.model, "vocab_size")
        return count if count <= MAX_VOCAB else 0


def read_layout(data: bytes, where: str) -> dict[str, Any]:
    """A tokenizer.json as an object. Raises BrokenModel, beginning with `where`, for anything else."""
    layout = json_object(data, where, "fetch the model again")
    if not isinstance(layout.get("model"), dict) or "type" not in layout["model"]:
        raise BrokenModel(f"{where} describes no tokenizer (no model.type); fetch the model again")
    return layout


def pin_tokenizer_json(layout: Mapping[str, Any], settings: TokenizerSettings, where: str) -> TokenizerPin:
    """The pin of a tokenizer.json that `read_layout` read. Raises BrokenModel for a vocabulary without sense."""
    try:
        return _facts(layout, settings).pin()
    except (AttributeError, LookupError, TypeError, ValueError, OverflowError, struct.error) as error:
        raise BrokenModel(f"{where} has no usable vocabulary ({error!r}); fetch the model again") from error


def open_sentencepiece(data: bytes, where: str) -> Any:
    """A `SentencePieceProcessor` of a tokenizer.model. Raises BrokenModel, or EngineError without its library."""
    try:
        from sentencepiece import SentencePieceProcessor
    except ImportError as error:
        raise EngineError(
            f"{where} needs the package sentencepiece; install it with: pip install sentencepiece"
        ) from error
    try:
        return SentencePieceProcessor(model_proto=data)
    except (RuntimeError, OSError) as error:
        raise BrokenModel(f"{where} is no usable sentencepiece model ({error}); fetch the model again") from error


def pin_sentencepiece(processor: Any, settings: TokenizerSettings) -> TokenizerPin:
    """The pin of a tokenizer.model that a `SentencePieceProcessor` has loaded."""
    count = processor.get_piece_size()
    rows = [(processor.id_to_piece(i), _kind(processor, i), processor.get_score(i)) for i in range(count)]
    rows += [(f"[PAD{i}]", _UNUSED, -10000.0) for i in range(count, settings.n_vocab)]
    ids = {piece: i for i, (piece, _, _) in enumerate(rows)}
    known = {"bos": processor.bos_id(), "eos": processor.eos_id(), "unk": processor.unk_id()}
    own = {f"{_KINDS[kind]}_token_id": token for kind, token in known.items() if token >= 0}
    values = {**own, **_values(settings, ids.get)}
    return TokenizerFacts(
        "llama",
        DEFAULT_PRE,
        len(rows),
        _strings(piece for piece, _, _ in rows),
        struct.pack(f"<{len(rows)}i", *(kind for _, kind, _ in rows)),
        struct.pack(f"<{len(rows)}f", *(score for _, _, score in rows)),
        b"",
        values,
    ).pin()


def parts(layout: Mapping[str, Any], *keys: str) -> Iterator[Mapping[str, Any]]:
    """The normalizers, pre-tokenizers or decoders of a tokenizer.json in order, those inside of sequences too."""
    waiting = [layout.get(key) for key in reversed(keys)]
    while waiting:
        part = waiting.pop()
        if isinstance(part, Mapping):
            yield part
            for key in ("decoders", "pretokenizers", "normalizers"):
                waiting.extend(reversed(part.get(key) or ()))


def is_byte_level(layout: Mapping[str, Any]) -> bool:
    """Whether pieces are spelt in GPT-2's letters for bytes."""
    return any(part.get("type") == "ByteLevel" for part in parts(layout, "normalizer", "pre_tokenizer", "decoder"))


def _facts(layout: Mapping[str, Any], settings: TokenizerSettings) -> TokenizerFacts:
    model = layout["model"]
    kind = "gpt2" if model["type"] == "BPE" and is_byte_level(layout) else f"tokenizer.json {model['type']}"
    added = {entry["id"]: entry for entry in layout.get("added_tokens") or ()}
    rows = _rows(model, added)
    count = max(max(rows, default=-1) + 1, settings.n_vocab)
    if count > MAX_VOCAB:
        raise ValueError(f"an id of {count - 1}")
    listed = [rows.get(token, (f"[PAD{token}]", _UNUSED, 0.0)) for token in range(count)]
    ids = {piece: token for token, (piece, _, _) in rows.items()}
    return TokenizerFacts(
        kind,
        _cut(layout),
        count,
        _strings(piece for piece, _, _ in listed),
        struct.pack(f"<{count}i", *(type_ for _, type_, _ in listed)),
        struct.pack(f"<{count}f", *(score for _, _, score in listed)),
        _strings(merge if isinstance(merge, str) else " ".join(merge) for merge in model.get("merges") or ()),
        {**_values(settings, ids.get), **_begins(layout, settings)},
    )


def _rows(model: Mapping[str, Any], added: Mapping[int, Mapping[str, Any]]) -> dict[int, tuple[str, int, float]]:
    """Piece, type and score by id."""
    vocabulary = model["vocab"]
    if isinstance(vocabulary, Mapping):
        rows = {int(token): (piece, _NORMAL, 0.0) for piece, token in vocabulary.items()}
    else:  # of a Unigram model: pairs in order
        rows = {token: (piece, _NORMAL, float(score)) for token, (piece, score) in enumerate(vocabulary)}
    for token, entry in added.items():
        piece = entry["content"]
        special = entry.get("special") or _LOOKS_SPECIAL.fullmatch(piece)
        rows[token] = (piece, _CONTROL if special else _ADDED, 0.0)
    return rows


def _cut(layout: Mapping[str, Any]) -> str:
    """llama.cpp's name for how text is cut before pairs are merged, or all of it where it has none here."""
    found = [_part(part) for part in parts(layout, "normalizer", "pre_tokenizer") if part.get("type") != "Sequence"]
    if layout["model"].get("ignore_merges"):
        found.append("whole words")
    return _CUTS.get(tuple(found)) or json.dumps(found)


def _part(part: Mapping[str, Any]) -> str:
    kind, pattern = part.get("type"), part.get("pattern")
    if kind == "ByteLevel" and not part.get("add_prefix_space"):
        return "bytes" if part.get("use_regex", True) else "plain bytes"
    if kind == "Digits" and part.get("individual_digits"):
        return "digits"
    if kind == "Split" and part.get("behavior") == "Isolated" and isinstance(pattern, Mapping) and "Regex" in pattern:
        return f"split {pattern['Regex']}"
    return "NFC" if kind == "NFC" else json.dumps(part, sort_keys=True)


def _begins(layout: Mapping[str, Any], settings: TokenizerSettings) -> dict[str, Value]:
    """Whether encoding adds BOS and EOS, by the template that does it, where the settings do not say."""
    template = next((p for p in _processors(layout) if p.get("type") == "TemplateProcessing"), None)
    if template is None:
        return {}
    around = ["SpecialToken" in piece for piece in template.get("single") or ()]
    found = {"add_bos_token": around[:1] == [True], "add_eos_token": around[1:] != [] and around[-1]}
    return {key: value for key, value in found.items() if value and not isinstance(settings.tokenizer.get(key), bool)}


def _processors(layout: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    processor = layout.get("post_processor")
    if isinstance(processor, Mapping):
        yield processor
        yield from processor.get("processors") or ()


def _values(settings: TokenizerSettings, id_of: Callable[[str], int | None]) -> dict[str, Value]:
    """The special ids and flags, by a GGUF's keys."""
    found: dict[str, Value] = {}
    for kind, key in _KINDS.items():
        token = settings.tokenizer.get(f"{kind}_token")
        content = token.get("content") if isinstance(token, Mapping) else token
        number = id_of(content) if isinstance(content, str) else settings.model.get(f"{kind}_token_id")
        if type(number) is int:
            found[f"{key}_token_id"] = number
    flags = {key: settings.tokenizer.get(key) for key in _FLAGS}
    if settings.model.get("model_type") == "llama":  # the only one for which llama.cpp's converter writes it
        flags["add_space_prefix"] = settings.tokenizer.get("add_prefix_space")
    return found | {key: flag for key, flag in flags.items() if isinstance(flag, bool)}


def _kind(processor: Any, token: int) -> int:
    tests: Sequence[tuple[Callable[[int], bool], int]] = (
        (processor.is_unknown, _UNKNOWN),
        (processor.is_control, _CONTROL),
        (processor.is_unused, _UNUSED),
        (processor.is_byte, _BYTE),
    )
    return next((kind for test, kind in tests if test(token)), _NORMAL)


def _strings(texts: Iterable[str]) -> bytes:
    """Strings as a GGUF's array has them."""
    encoded = (text.encode() for text in texts)
    return b"".join(struct.pack("<Q", len(data)) + data for data in encoded)
