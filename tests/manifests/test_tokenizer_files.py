"""Tokenizer files are pinned as the GGUF that they would be converted to."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from sentencepiece import SentencePieceProcessor, SentencePieceTrainer

from pilotfish.daemon.lab.mlx_models.gguf_tokenizer import tokenizer_config, tokenizer_json
from pilotfish.daemon.lab.tiny_models.vocabulary import read_vocabulary
from pilotfish.hooks.errors import BrokenModel
from pilotfish.manifests.gguf import read_metadata
from pilotfish.manifests.tokenizer import fingerprint_tokenizer
from pilotfish.manifests.tokenizer_files import TokenizerSettings, pin_sentencepiece, pin_tokenizer_json, read_layout
from tests.manifests.builders import smollm2_path, tiny_gguf

LLAMA = {"model_type": "llama", "vocab_size": 49152}


@pytest.fixture(scope="module")
def files() -> tuple[dict[str, Any], dict[str, Any]]:
    """SmolLM2's tokenizer.json and tokenizer_config.json."""
    vocabulary = read_vocabulary(smollm2_path())
    return tokenizer_json(vocabulary), tokenizer_config(vocabulary)


def test_a_converted_vocabulary_has_the_ggufs_fingerprint(files):
    layout, beside = files
    pin = fingerprint_tokenizer(read_metadata(smollm2_path()))
    assert pin_tokenizer_json(layout, TokenizerSettings(beside, LLAMA), "t") == pin
    joined = [" ".join(merge) for merge in layout["model"]["merges"]]  # as older files have them
    older = {**layout, "model": {**layout["model"], "merges": joined}}
    assert pin_tokenizer_json(older, TokenizerSettings(beside, LLAMA), "t") == pin


@pytest.mark.parametrize(
    ("change", "settings"),
    [
        ({"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False}}, {}),
        ({"normalizer": {"type": "NFC"}}, {}),
        ({"added_tokens": []}, {}),
        ({}, {"vocab_size": 49153}),
        ({}, {"eos_token": "<|endoftext|>"}),
        ({}, {"add_bos_token": True}),
    ],
)
def test_whatever_would_change_the_gguf_changes_the_fingerprint(files, change, settings):
    layout, beside = files
    pin = pin_tokenizer_json(layout, TokenizerSettings(beside, LLAMA), "t")
    changed = TokenizerSettings({**beside, **settings}, {**LLAMA, **settings})
    assert pin_tokenizer_json({**layout, **change}, changed, "t").fingerprint != pin.fingerprint


def test_a_template_that_begins_with_bos_is_seen(files):
    layout, beside = files
    piece = {"SpecialToken": {"id": "<|im_start|>", "type_id": 0}}
    template = {"type": "TemplateProcessing", "single": [piece, {"Sequence": {"id": "A", "type_id": 0}}]}
    beside = {key: value for key, value in beside.items() if key != "add_bos_token"}
    pin = pin_tokenizer_json({**layout, "post_processor": template}, TokenizerSettings(beside, LLAMA), "t")
    assert (pin.add_bos, pin.add_eos, pin.bos) == (True, False, 1)


def test_a_sentencepiece_model_has_the_fingerprint_of_its_gguf(tmp_path: Path) -> None:
    written = io.BytesIO()
    SentencePieceTrainer.train(
        sentence_iterator=iter(["the quick brown fox jumps over the lazy dog"] * 50),
        model_writer=written,
        vocab_size=300,
        model_type="bpe",
        byte_fallback=True,
        minloglevel=2,
    )
    model = SentencePieceProcessor(model_proto=written.getvalue())
    count = model.get_piece_size()
    kinds = [2, 3, 3, *[6] * 256]
    path = tiny_gguf(
        tmp_path / "m.gguf",
        model="llama",
        tokens=[*map(model.id_to_piece, range(count)), "[PAD300]"],
        token_type=[*kinds, *[1] * (count - len(kinds)), 5],
        scores=[*map(model.get_score, range(count)), -10000.0],
        merges=None,
        values={f"tokenizer.ggml.{kind}_token_id": i for i, kind in enumerate(("unknown", "bos", "eos"))},
    )
    pin = fingerprint_tokenizer(read_metadata(path))
    assert pin_sentencepiece(model, TokenizerSettings(model={"vocab_size": 301})) == pin


@pytest.mark.parametrize(
    "model",
    [
        {"type": "BPE"},
        {"type": "BPE", "vocab": {"a": "b"}},
        {"type": "BPE", "vocab": 3},
        {"type": "BPE", "vocab": {"a": 10**15}},
        {"type": "BPE", "vocab": {"\ud83d": 0}},
        {"type": "Unigram", "vocab": [["a"]]},
        {"type": "BPE", "vocab": {"a": 0}, "merges": [3]},
    ],
)
def test_a_vocabulary_without_sense_is_refused_by_name(model):
    layout = read_layout(json.dumps({"model": model}).encode(), "t")
    with pytest.raises(BrokenModel, match="t has no usable vocabulary"):
        pin_tokenizer_json(layout, TokenizerSettings(), "t")
