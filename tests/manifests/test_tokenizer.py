import llama_cpp
import pytest

from pilotfish.hooks.errors import BrokenModel
from pilotfish.hooks.types import TokenizerPin
from pilotfish.manifests.gguf import read_metadata
from pilotfish.manifests.tokenizer import fingerprint_tokenizer
from tests.manifests.builders import tiny_gguf

BOS, EOS, ADD_BOS = "tokenizer.ggml.bos_token_id", "tokenizer.ggml.eos_token_id", "tokenizer.ggml.add_bos_token"


@pytest.fixture
def pin(tmp_path):
    def pin(**options) -> TokenizerPin:
        return fingerprint_tokenizer(read_metadata(tiny_gguf(tmp_path / "m.gguf", **options)))

    return pin


def test_equal_tokenizers_in_different_models_are_equal(pin):
    other = {
        "tensors": ("token_embd.weight",),
        "architecture": "qwen3",
        "values": {"tokenizer.chat_template": "{{ y }}"},
    }
    assert pin() == pin(**other)


@pytest.mark.parametrize(
    "change",
    [
        {"tokens": ("<s>", "</s>", "a", "c")},
        {"tokens": ("<s>", "</s>", "ab", "")},
        {"tokens": ("<s>", "</s>", "a", "b", "c")},
        {"token_type": (3, 1, 1, 1)},
        {"scores": (0.0, 0.0, 0.0, 1.0)},
        {"merges": ("b a",)},
        {"merges": None},
        {"model": "llama"},
        {"values": {BOS: 0}},
        {"values": {EOS: 1}},
        {"values": {ADD_BOS: True}},
        {"values": {"tokenizer.ggml.add_eos_token": True}},
        {"values": {"tokenizer.ggml.pre": "qwen2"}},
        {"values": {"tokenizer.ggml.eot_token_id": 3}},
        {"values": {"tokenizer.ggml.add_space_prefix": True}},
    ],
)
def test_each_part_of_the_tokenizer_counts(pin, change):
    assert pin(**change).fingerprint != pin().fingerprint


def test_parts_are_kept_apart(pin):
    pre = "tokenizer.ggml.pre"
    assert pin(model="gpt2", values={pre: "qwen2"}).fingerprint != pin(model="gpt2q", values={pre: "wen2"}).fingerprint


def test_defaults_may_be_spelled_out_or_left_out(pin):
    assert pin() == pin(token_type=(1, 1, 1, 1), scores=(0.0, 0.0, 0.0, 0.0), values={ADD_BOS: False})
    assert pin(model="llama") == pin(model="llama", values={BOS: 1, EOS: 2, ADD_BOS: True})


@pytest.mark.parametrize(
    ("options", "bos", "eos", "add_bos"),
    [
        ({"model": "llama"}, 1, 2, True),
        ({"model": "gpt2"}, None, None, False),  # 11 by default, which this vocabulary does not have
        ({"model": "gpt2", "values": {BOS: 2, EOS: 3}}, 2, 3, False),
        ({"model": "gpt2", "values": {BOS: 900}}, None, None, False),
        ({"model": "llama", "values": {BOS: 900}}, 1, 2, True),
        ({"model": "gpt2", "values": {"tokenizer.ggml.pre": "llama-bpe"}}, None, None, True),
        ({"model": "gpt2", "values": {"tokenizer.ggml.pre": "llama-bpe", ADD_BOS: False}}, None, None, False),
        ({"model": "gemma4", "values": {ADD_BOS: False}}, None, None, True),
    ],
)
def test_special_ids_are_those_that_the_engine_uses(pin, options, bos, eos, add_bos):
    found = pin(**options)
    assert (found.bos, found.eos, found.add_bos) == (bos, eos, add_bos)


def test_a_file_without_a_vocabulary_is_refused(pin):
    with pytest.raises(BrokenModel, match="has no tokenizer"):
        pin(tokens=None)


def test_scores_that_do_not_match_the_tokens_are_refused(pin):
    with pytest.raises(BrokenModel, match="do not match the 4 tokens"):
        pin(scores=(1.0, 2.0))


@pytest.mark.model
def test_a_real_tokenizer(smollm2):
    found = fingerprint_tokenizer(read_metadata(smollm2))
    assert (found.model, found.n_vocab, found.bos, found.eos) == ("gpt2", 49152, 1, 2)
    assert (found.add_bos, found.add_eos) == (False, False)
    assert len(bytes.fromhex(found.fingerprint)) == 32


@pytest.mark.model
def test_the_pin_agrees_with_the_engine(smollm2):
    llama_cpp.llama_backend_init()
    params = llama_cpp.llama_model_default_params()
    params.vocab_only = True
    model = llama_cpp.llama_model_load_from_file(str(smollm2).encode(), params)
    try:
        vocab = llama_cpp.llama_model_get_vocab(model)
        found = fingerprint_tokenizer(read_metadata(smollm2))
        assert found.n_vocab == llama_cpp.llama_vocab_n_tokens(vocab)
        assert (found.bos, found.eos) == (llama_cpp.llama_vocab_bos(vocab), llama_cpp.llama_vocab_eos(vocab))
        assert found.add_bos == llama_cpp.llama_vocab_get_add_bos(vocab)
        assert found.add_eos == llama_cpp.llama_vocab_get_add_eos(vocab)
    finally:
        llama_cpp.llama_model_free(model)
