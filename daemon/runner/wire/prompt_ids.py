"""Prompts as token ids. A prompt is a text, a list of ids, a mix of both, or an object with `prompt_string`."""

from __future__ import annotations

from typing import Any

from pilotfish.hooks.errors import RequestError, UnsupportedRequest
from pilotfish.hooks.protocols import Tokenizer

_SHAPE = (
    '"prompt" elements must be a string, a list of tokens, a JSON object containing a prompt string, '
    "or a list of mixed strings & tokens."
)


def read_prompts(prompt: Any, tokenizer: Tokenizer, n_vocab: int) -> list[tuple[int, ...]]:
    """The prompts that a body's `prompt` stands for, at least one; a list without ids is a list of prompts.

    Raises RequestError for another shape or ids outside the vocabulary, UnsupportedRequest for images or audio.
    """
    many = isinstance(prompt, list) and not any(_is_id(item) for item in prompt)
    prompts = [_read(item, tokenizer) for item in (prompt if many else [prompt])]
    if not prompts:
        raise RequestError('"prompt" must not be empty')
    for ids in prompts:
        if any(not 0 <= token < n_vocab for token in ids):
            raise RequestError(f"Prompt contains invalid tokens: ids go from 0 to {n_vocab - 1} in this model")
    return prompts


def tokenize(content: Any, tokenizer: Tokenizer, *, add_special: bool, parse_special: bool) -> list[int]:
    """Ids of a text, or of a list of texts and ids; special tokens are added only before a leading text."""
    if isinstance(content, str):
        return tokenizer.encode(content, add_special=add_special, parse_special=parse_special)
    if not isinstance(content, list) or not all(isinstance(item, str) or _is_id(item) for item in content):
        raise RequestError(f"expected a text or a list of texts and token ids, got {content!r:.80}")
    ids: list[int] = []
    for index, item in enumerate(content):
        if isinstance(item, str):
            first = add_special and index == 0
            ids += tokenizer.encode(item, add_special=first, parse_special=parse_special)
        else:
            ids.append(item)
    return ids


def _read(prompt: Any, tokenizer: Tokenizer) -> tuple[int, ...]:
    if isinstance(prompt, dict) and "prompt_string" in prompt:
        if prompt.get("multimodal_data"):
            raise UnsupportedRequest(
                "Multimodal data provided, but model does not support multimodal requests; send text only"
            )
        prompt = prompt["prompt_string"]
    if isinstance(prompt, str) or (isinstance(prompt, list) and all(isinstance(p, str) or _is_id(p) for p in prompt)):
        return tuple(tokenize(prompt, tokenizer, add_special=True, parse_special=True))
    raise RequestError(_SHAPE)


def _is_id(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
