"""The tokenizer against libllama's own calls, which llama-server's /tokenize and /detokenize make."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pilotfish.hooks.errors import RequestError

if TYPE_CHECKING:
    from pilotfish.plugins._cells.engine import CellEngine

pytestmark = pytest.mark.model

TEXTS = [
    "",
    " ",
    "Hello, world",
    "<|im_start|>user\nHi<|im_end|>\n",
    "<|endoftext|>already begins with it",
    "<|im_start|><|im_start|>",
    "naïve 東京 😊 \u0000 end",
    "a" * 3000,
    "\n\n\n   \t x",
]


def reference(engine: CellEngine, text: str, add_special: bool, parse_special: bool) -> list[int]:
    from llama_cpp import llama_cpp as lib

    data = text.encode()
    ids = (ctypes.c_int32 * (4 * len(data) + 16))()
    count = lib.llama_tokenize(engine.tokenizer.vocab, data, len(data), ids, len(ids), add_special, parse_special)
    return list(ids[:count])


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("add_special", [False, True])
@pytest.mark.parametrize("parse_special", [False, True])
def test_encode_is_llama_tokenize(engine: CellEngine, text: str, add_special: bool, parse_special: bool) -> None:
    found = engine.tokenizer.encode(text, add_special=add_special, parse_special=parse_special)
    assert found == reference(engine, text, add_special, parse_special)


def test_special_tokens_in_the_text_are_parsed_only_when_asked(engine: CellEngine) -> None:
    text = "<|im_start|>user<|im_end|>"
    (start, *_, end) = engine.tokenizer.encode(text)
    assert engine.tokenizer.piece(start, special=True) == b"<|im_start|>"
    assert engine.tokenizer.piece(start) == b""
    assert end in engine.eog
    assert len(engine.tokenizer.encode(text, parse_special=False)) > len(engine.tokenizer.encode(text))
    assert engine.tokenizer.decode(engine.tokenizer.encode(text)) == text.encode()
    assert engine.tokenizer.decode(engine.tokenizer.encode(text), special=False) == b"user"


def test_any_text_is_encoded_as_libllama_does_and_printable_ascii_survives(engine: CellEngine) -> None:
    @given(st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
    @settings(max_examples=60, deadline=None)
    def check(text: str) -> None:
        ids = engine.tokenizer.encode(text)
        assert ids == reference(engine, text, True, True)
        if text.isascii() and text.isprintable():  # this vocabulary lacks a few bytes beyond
            assert engine.tokenizer.decode(ids) == text.encode()

    check()


def test_a_lone_surrogate_is_the_requests_fault(engine: CellEngine) -> None:
    with pytest.raises(RequestError, match="Unicode"):
        engine.tokenizer.encode("\ud800")


@pytest.mark.parametrize("token", [-1, 49152, 2**40])
def test_an_id_outside_the_vocabulary_has_no_piece(engine: CellEngine, token: int) -> None:
    with pytest.raises(RequestError, match=str(token)):
        engine.tokenizer.piece(token)


def test_the_end_tokens_are_the_models(engine: CellEngine) -> None:
    pieces = {engine.tokenizer.piece(token, special=True) for token in engine.eog}
    assert {b"<|im_end|>", b"<|endoftext|>"} <= pieces
