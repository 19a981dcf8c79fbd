"""The fingerprint of the tokenizer in a GGUF file: equal for two files that turn ids into bytes, and bytes into ids,
in the same way.

Token types, scores, BOS, EOS and whether they are added are filled in as llama.cpp does where a file leaves them out:
a file that spells a default out and one that omits it are the same tokenizer. All other settings count as they stand.
The chat template is no part of it.
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass

from gguf import GGUFValueType

from pilotfish.hooks.errors import BrokenModel
from pilotfish.hooks.types import TokenizerPin
from pilotfish.manifests.gguf import GGUFMetadata
from pilotfish.manifests.gguf_header import ArrayRef, Value

PREFIX = "tokenizer.ggml."
DEFAULT_PRE = "default"  # how text is cut first where a file does not say
_NORMAL = 1  # the token type of a vocabulary entry that no type is given for
_ARRAYS = {"tokens", "token_type", "scores", "merges"}
_SPECIAL = re.compile(r"(bos|eos)_token_id|add_(bos|eos)_token|token_type_count")

# Defaults of llama.cpp by algorithm: bos id, eos id, add bos, add eos.
_DEFAULTS: dict[str, tuple[int | None, int | None, bool, bool]] = {
    "llama": (1, 2, True, False),
    "bert": (101, None, True, False),
    "gpt2": (11, 11, False, False),
    "t5": (None, 1, False, True),
    "plamo2": (1, 2, False, False),
}
_ADD_BOS = {  # pre-tokenizers of gpt2 vocabularies whose default is to begin with BOS
    "chameleon",
    "falcon-h1",
    "falcon3",
    "jina-v5-nano",
    "lfm2",
    "llama-bpe",
    "llama-v3",
    "llama3",
    "midm-2.0",
    "pixtral",
    "tekken",
}
_NO_BOS = {"chatglm-bpe", "glm4", "glm5"}  # pre-tokenizers whose vocabularies have no BOS by default


@dataclass(frozen=True, slots=True)
class TokenizerFacts:
    """What enters a fingerprint, as a GGUF has it: of a GGUF, or of the files that one would be converted from.

    `tokens` and `merges` are strings each led by a uint64 length, `types` an int32 and `scores` a float32 for each
    token. `values` are the other keys below `tokenizer.ggml.`.
    """

    model: str
    pre: str
    count: int
    tokens: bytes
    types: bytes
    scores: bytes
    merges: bytes
    values: Mapping[str, Value]

    def pin(self) -> TokenizerPin:
        """The pin of a tokenizer of which this is true."""
        bos, eos, add_bos, add_eos = _specials(self)
        digest = hashlib.sha256()
        for part in (self.model, self.pre):
            _feed(digest, part.encode())
        _feed(digest, repr((self.count, bos, eos, add_bos, add_eos)).encode())
        for data in (self.tokens, self.types, self.scores, self.merges):
            _feed(digest, data)
        for key, value in _other_settings(self.values):
            _feed(digest, key.encode())
            _feed(digest, value)
        return TokenizerPin(digest.hexdigest(), self.model, self.count, bos, eos, add_bos, add_eos)


def fingerprint_tokenizer(metadata: GGUFMetadata) -> TokenizerPin:
    """Pin the tokenizer of a GGUF file. Raises BrokenModel when it has no usable vocabulary."""
    model = metadata.text(PREFIX + "model")
    tokens = metadata.array(PREFIX + "tokens")
    if not model or tokens is None or tokens.element is not GGUFValueType.STRING:
        raise BrokenModel(f"{metadata.path} has no tokenizer ({PREFIX}model, {PREFIX}tokens); use a complete GGUF")
    merges = metadata.array(PREFIX + "merges")
    facts = TokenizerFacts(
        model,
        metadata.text(PREFIX + "pre", DEFAULT_PRE),
        tokens.count,
        tokens.raw(),
        _types(metadata, tokens.count),
        _scores(metadata, tokens.count),
        merges.raw() if merges else b"",
        {key.removeprefix(PREFIX): value for key, value in metadata.values.items() if key.startswith(PREFIX)},
    )
    return facts.pin()


def _feed(digest: hashlib._Hash, data: bytes) -> None:
    """Hash a part with its length, so that no two sequences of parts look alike."""
    digest.update(struct.pack("<Q", len(data)))
    digest.update(data)


def _specials(facts: TokenizerFacts) -> tuple[int | None, int | None, bool, bool]:
    model, pre = facts.model, facts.pre
    bos, eos, add_bos, add_eos = _DEFAULTS.get(model, (None, None, False, False))
    if pre in _NO_BOS:
        bos = None
    return (
        _id(facts, "bos", bos),
        _id(facts, "eos", eos),
        # Gemma 4 files say add_bos = false by mistake; llama.cpp adds it all the same.
        model == "gemma4" or pre == "gemma4" or _flag(facts, "add_bos_token", add_bos or pre in _ADD_BOS),
        _flag(facts, "add_eos_token", add_eos),
    )


def _id(facts: TokenizerFacts, kind: str, default: int | None) -> int | None:
    """A special id; one outside of the vocabulary counts as not given, as llama.cpp has it."""
    given = facts.values.get(f"{kind}_token_id")
    found = (number for number in (given, default) if type(number) is int)
    return next((number for number in found if 0 <= number < facts.count), None)


def _flag(facts: TokenizerFacts, key: str, default: bool) -> bool:
    value = facts.values.get(key)
    return value if isinstance(value, bool) else default


def _types(metadata: GGUFMetadata, count: int) -> bytes:
    array = metadata.array(PREFIX + "token_type")
    return _per_token(metadata, array, count) if array else struct.pack("<i", _NORMAL) * count


def _scores(metadata: GGUFMetadata, count: int) -> bytes:
    array = metadata.array(PREFIX + "scores")
    return _per_token(metadata, array, count) if array else struct.pack("<f", 0.0) * count


def _per_token(metadata: GGUFMetadata, array: ArrayRef, count: int) -> bytes:
    if array.count < count or array.end - array.start != 4 * array.count:
        raise BrokenModel(
            f"{metadata.path}: token types or scores do not match the {count} tokens; use a complete GGUF"
        )
    return array.raw()[: 4 * count]


def _other_settings(values: Mapping[str, Value]) -> list[tuple[str, bytes]]:
    """Every other tokenizer key, in order: further special ids, whitespace rules, a normalizer's tables."""
    found = []
    for name, value in sorted(values.items()):
        if name in _ARRAYS or name in ("model", "pre") or _SPECIAL.fullmatch(name):
            continue
        found.append((name, value.raw() if isinstance(value, ArrayRef) else repr(value).encode()))
    return found
