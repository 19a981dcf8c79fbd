"""The vocabulary of the packaged model, whole and in part."""

from __future__ import annotations

import gguf
import pytest

from pilotfish.daemon.lab.tiny_models.vocabulary import read_vocabulary
from pilotfish.manifests.gguf import read_metadata
from pilotfish.manifests.tokenizer import fingerprint_tokenizer


@pytest.fixture(scope="module")
def vocabulary(smollm2_path):
    return read_vocabulary(smollm2_path)


def written(path, vocabulary):
    writer = gguf.GGUFWriter(path, "llama")
    vocabulary.add_to(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return read_metadata(path)


def test_a_copy_is_the_same_tokenizer(smollm2_path, vocabulary, tmp_path):
    copy = written(tmp_path / "copy.gguf", vocabulary)
    assert fingerprint_tokenizer(copy) == fingerprint_tokenizer(read_metadata(smollm2_path))
    assert vocabulary.size == 49152


def test_the_first_tokens_keep_the_merges_that_make_them_and_no_others(vocabulary):
    part = vocabulary.first(1000)
    tokens = part.values["tokenizer.ggml.tokens"]
    assert part.size == len(tokens) == len(part.values["tokenizer.ggml.token_type"]) == 1000
    merges = part.values["tokenizer.ggml.merges"]
    assert 0 < len(merges) < 1000
    assert {merge.replace(b" ", b"") for merge in merges} <= set(tokens)


def test_all_of_it_is_not_copied_again(vocabulary):
    assert vocabulary.first(None) is vocabulary
    assert vocabulary.first(1 << 20) is vocabulary
