"""A `tokenizer.json` and a `tokenizer_config.json` of the byte-level vocabulary in a GGUF."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pilotfish.daemon.lab.tiny_models.vocabulary import VocabularyKeys
from pilotfish.hooks.errors import EngineError

_CONTROL, _ADDED = 3, 4  # token types of a GGUF
_SPECIALS = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}  # Hugging Face's word: the file's
_BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
_CUTS = {  # how text is cut before bytes are paired, by the file's name for it
    "smollm": {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, _BYTES]},
    "gpt-2": _BYTES,
}


def tokenizer_json(vocabulary: VocabularyKeys) -> dict[str, Any]:
    """What Hugging Face's library needs to encode as the GGUF's tokenizer does.

    Raises EngineError for a vocabulary that is not byte-level, or whose way of cutting text is not known here.
    """
    values = _ggml(vocabulary)
    cut = _CUTS.get(str(values.get("pre")))
    if values["model"] != "gpt2" or cut is None:
        raise EngineError(f"no tokenizer.json can be made of a vocabulary {values['model']}, {values.get('pre')}")
    pieces = [token.decode() for token in values["tokens"]]
    types = values["token_type"]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            _added(i, piece, types[i] == _CONTROL) for i, piece in enumerate(pieces) if types[i] in (_CONTROL, _ADDED)
        ],
        "normalizer": None,
        "pre_tokenizer": cut,
        "post_processor": None,
        "decoder": _BYTES,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": {piece: i for i, piece in enumerate(pieces)},
            "merges": [merge.decode().split(" ", 1) for merge in values["merges"]],
        },
    }


def tokenizer_config(vocabulary: VocabularyKeys) -> dict[str, Any]:
    """Its special tokens, flags and chat template, as Hugging Face's library names them."""
    values = _ggml(vocabulary)
    found: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast"}
    for theirs, ours in _SPECIALS.items():
        if (token := values.get(f"{ours}_token_id")) is not None:
            found[f"{theirs}_token"] = values["tokens"][token].decode()
    flags = {"add_bos_token": "add_bos_token", "add_eos_token": "add_eos_token", "add_space_prefix": "add_prefix_space"}
    found.update({theirs: values[ours] for ours, theirs in flags.items() if ours in values})
    if template := vocabulary.values.get("tokenizer.chat_template"):
        found["chat_template"] = template
    return found


def _ggml(vocabulary: VocabularyKeys) -> Mapping[str, Any]:
    prefix = "tokenizer.ggml."
    return {key.removeprefix(prefix): value for key, value in vocabulary.values.items() if key.startswith(prefix)}


def _added(token: int, content: str, special: bool) -> dict[str, Any]:
    whole = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": token, "content": content, **whole, "special": special}
