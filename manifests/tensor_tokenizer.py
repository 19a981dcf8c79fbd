"""The tokenizer among the layers of an MLX model, and its pin."""

from __future__ import annotations

import hashlib
from pathlib import Path

from pilotfish.hooks.types import TokenizerPin
from pilotfish.manifests.fingerprints import remembered_pin
from pilotfish.manifests.tensor_layers import TensorLayers
from pilotfish.manifests.tokenizer_files import (
    FORMAT,
    SENTENCEPIECE_MODEL,
    TOKENIZER_CONFIG,
    TOKENIZER_JSON,
    TokenizerSettings,
    open_sentencepiece,
    pin_sentencepiece,
    pin_tokenizer_json,
    read_layout,
)

NO_TOKENIZER = TokenizerPin(fingerprint="", model="", n_vocab=0)  # of models that hold none


def tokenizer_file(layers: TensorLayers) -> Path | None:
    """The blob of a model's tokenizer.json, or of its tokenizer.model where it has none; None without either."""
    return layers.file(TOKENIZER_JSON) or layers.file(SENTENCEPIECE_MODEL)


def tokenizer_settings(layers: TensorLayers) -> TokenizerSettings:
    """What stands beside it. Raises BrokenModel for a file that is there and cannot be read."""
    found = (layers.json(name) if layers.file(name) else {} for name in (TOKENIZER_CONFIG, "config.json"))
    return TokenizerSettings(*found)


def layers_tokenizer_pin(layers: TensorLayers, state_dir: Path | None = None) -> TokenizerPin:
    """The pin of an MLX model's tokenizer, computed at most once for each state of its files; `NO_TOKENIZER` where it
    has none. Raises BrokenModel for one that is broken."""
    path = tokenizer_file(layers)
    if path is None:
        return NO_TOKENIZER
    beside = "".join(str(layers.file(name)) for name in (TOKENIZER_CONFIG, "config.json"))
    fact = f"tokenizer-files-{FORMAT}-{hashlib.sha256(beside.encode()).hexdigest()[:16]}"
    return remembered_pin(path, fact, state_dir, lambda: _pin(layers, path))


def _pin(layers: TensorLayers, path: Path) -> TokenizerPin:
    settings = tokenizer_settings(layers)
    if path == layers.file(TOKENIZER_JSON):
        return pin_tokenizer_json(read_layout(path.read_bytes(), str(path)), settings, str(path))
    return pin_sentencepiece(open_sentencepiece(path.read_bytes(), str(path)), settings)
