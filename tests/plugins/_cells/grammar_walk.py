"""Grammars over a vocabulary of single bytes: what they allow next, and whether they accept a text."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import gguf

from pilotfish.plugins._llama.library import lib, send_log_to
from tests.plugins.verifiers.tiny_gguf import add_byte_vocabulary

END = -1  # among the bytes that may come next: the text may end here
_END_TOKEN, _FIRST_BYTE, _COUNT = 2, 3, 259


class Walk:
    """One way through a grammar."""

    def __init__(self, sampler: object) -> None:
        self._sampler = sampler
        self._data = (lib.llama_token_data * _COUNT)()

    def allowed(self) -> frozenset[int]:
        """The bytes that may come next, and END if the text may end."""
        for token in range(_COUNT):
            self._data[token] = lib.llama_token_data(id=token, logit=0.0, p=0.0)
        candidates = lib.llama_token_data_array(data=self._data, size=_COUNT, selected=-1, sorted=False)
        lib.llama_sampler_apply(self._sampler, ctypes.byref(candidates))
        found = {token - _FIRST_BYTE for token in range(_FIRST_BYTE, _COUNT) if not math.isinf(self._data[token].logit)}
        return frozenset(found | ({END} if not math.isinf(self._data[_END_TOKEN].logit) else set()))

    def accept(self, byte: int) -> None:
        """Go on; `byte` must be allowed."""
        lib.llama_sampler_accept(self._sampler, byte + _FIRST_BYTE)

    def accepts(self, text: str) -> bool:
        """Whether all of `text`, and nothing more, may be written from here."""
        for byte in text.encode():
            if byte not in self.allowed():
                return False
            self.accept(byte)
        return END in self.allowed()


class Grammars:
    """Makes walks."""

    def __init__(self, vocabulary: object) -> None:
        self.vocabulary = vocabulary

    @contextmanager
    def walk(self, grammar: str) -> Iterator[Walk]:
        """A walk from the beginning of a GBNF grammar."""
        sampler = lib.llama_sampler_init_grammar(self.vocabulary, grammar.encode(), b"root")
        assert sampler, f"libllama does not read this grammar:\n{grammar}"
        try:
            yield Walk(sampler)
        finally:
            lib.llama_sampler_free(sampler)


@contextmanager
def grammars_over_bytes(folder: Path) -> Iterator[Grammars]:
    """Over a model that is nothing but a vocabulary."""
    path = folder / "bytes.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    add_byte_vocabulary(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    send_log_to("logger")
    params = lib.llama_model_default_params()
    params.vocab_only = True
    model = lib.llama_model_load_from_file(bytes(path), params)
    assert model, "libllama does not load a vocabulary alone"
    try:
        yield Grammars(lib.llama_model_get_vocab(model))
    finally:
        lib.llama_model_free(model)
