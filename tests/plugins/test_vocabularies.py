"""Vocabularies from tokenizer files, made here with the libraries that read them."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from sentencepiece import SentencePieceTrainer
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers

from pilotfish.hooks.errors import BrokenModel, EngineError, ModelNotFound, RequestError
from pilotfish.hooks.protocols import Vocabulary
from pilotfish.plugins._vocabularies import FileTokenizer, load_vocabulary

TEXTS = ["Hello, world", " two  spaces", "naïve 東京 😊\n\n\ttab", "<s> </s> <end> <tool>", ""]


def byte_level(folder: Path) -> Path:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(
        models.BPE({piece: i for i, piece in enumerate([*alphabet, "Ġt", "Ġth"])}, [("Ġ", "t"), ("Ġt", "h")])
    )
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<end>"])
    tokenizer.add_tokens([AddedToken("<tool>", normalized=False)])
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder / "tokenizer.json"


def spaced(folder: Path) -> Path:
    pieces = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "\u2581", "\u2581\u2581", "t", "\u2581t"]
    vocab = {piece: i for i, piece in enumerate(pieces)}
    merges = [("\u2581", "\u2581"), ("\u2581", "t")]
    tokenizer = Tokenizer(models.BPE(vocab, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = normalizers.Replace(" ", "\u2581")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
    tokenizer.add_special_tokens(["<end>", "<unk>"])
    tokenizer.add_tokens([AddedToken("\u2581\u2581", normalized=False), AddedToken("<tool>", normalized=False)])
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder / "tokenizer.json"


def sentencepiece(folder: Path) -> Path:
    model = io.BytesIO()
    SentencePieceTrainer.train(
        sentence_iterator=iter(["the quick brown fox jumps over the lazy dog"] * 50),
        model_writer=model,
        vocab_size=300,
        model_type="bpe",
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        user_defined_symbols=["<tool>"],
        minloglevel=2,
    )
    (folder / "tokenizer.model").write_bytes(model.getvalue())
    return folder / "tokenizer.model"


@pytest.fixture(params=[byte_level, spaced, sentencepiece], ids=lambda make: make.__name__)
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    made: Path = request.param(tmp_path)
    return made


def spelt(vocabulary: Vocabulary, ids: list[int]) -> bytes:
    return b"".join(map(vocabulary.piece, ids))


@pytest.mark.parametrize("text", TEXTS)
def test_pieces_spell_the_text_byte_by_byte(path: Path, text: str) -> None:
    vocabulary = load_vocabulary(path)
    extra = b" " if text and path.suffix == ".model" else b""  # sentencepiece begins every text with a space
    assert spelt(vocabulary, vocabulary.encode(text)) == extra + text.encode()


def test_a_folder_stands_for_the_file_in_it(path: Path) -> None:
    assert load_vocabulary(path.parent).pin == load_vocabulary(path).pin


def test_it_is_pinned_by_the_files_contents(path: Path) -> None:
    before = load_vocabulary(path).pin
    assert load_vocabulary(path).pin == before
    if path.suffix == ".json":
        table = json.loads(path.read_text())
        table["model"]["vocab"]["another"] = len(table["model"]["vocab"]) + 10
        path.write_text(json.dumps(table))
        assert load_vocabulary(path).pin.fingerprint != before.fingerprint


def test_what_looks_special_in_text_is_text(path: Path) -> None:
    vocabulary = load_vocabulary(path)
    assert not any(map(vocabulary.special, vocabulary.encode("<end> <s> </s>")))


def test_special_tokens_are_told_from_others(path: Path) -> None:
    vocabulary = load_vocabulary(path)
    special = {vocabulary.piece(token) for token in range(vocabulary.pin.n_vocab) if vocabulary.special(token)}
    assert special <= {b"<end>", b"<unk>", b"<s>", b"</s>"}
    assert special
    assert [vocabulary.piece(token) for token in vocabulary.encode("<tool>")][-1:] == [b"<tool>"]


def test_ids_outside_are_refused(path: Path) -> None:
    vocabulary = load_vocabulary(path)
    for token in (-1, vocabulary.pin.n_vocab):
        with pytest.raises(RequestError, match=f"token id {token} is outside the vocabulary"):
            vocabulary.piece(token)


def test_bytes_and_spaces_are_spelt_as_such(tmp_path: Path) -> None:
    vocabulary = load_vocabulary(spaced(tmp_path))
    pieces = [vocabulary.piece(token) for token in range(vocabulary.pin.n_vocab)]
    assert pieces[1:257] == [bytes((byte,)) for byte in range(256)]
    assert pieces[257:261] == [b" ", b"  ", b"t", b" t"]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("{", "is not JSON"),
        ("[]", "is not a JSON object"),
        ("{}", "describes no tokenizer"),
        ({"model": {"type": "WordPiece", "vocab": {}}, "decoder": {"type": "WordPiece"}}, "do not spell text exactly"),
        ({"model": {"type": "BPE"}, "decoder": {"type": "ByteLevel"}}, "is no usable tokenizer.json"),
    ],
)
def test_a_broken_json_is_refused_by_name(tmp_path: Path, table: Any, message: str) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(table if isinstance(table, str) else json.dumps(table))
    with pytest.raises(BrokenModel, match=message) as caught:
        load_vocabulary(path)
    assert str(path) in str(caught.value)


def test_a_broken_model_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.model"
    path.write_bytes(b"nothing of the kind")
    with pytest.raises(BrokenModel, match="no usable sentencepiece model"):
        load_vocabulary(path)


def test_a_folder_without_either_is_not_found(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "tokenizer.json"):
        with pytest.raises(ModelNotFound, match=r"holds no tokenizer\.json and no tokenizer\.model"):
            load_vocabulary(path)


@pytest.mark.parametrize(("make", "library"), [(byte_level, "tokenizers"), (sentencepiece, "sentencepiece")])
def test_a_missing_library_is_named(make: Any, library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make(tmp_path)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(EngineError, match=f"pip install {library}"):
        load_vocabulary(path)


def test_a_targets_tokenizer_reads_special_tokens_where_they_are_meant(path: Path) -> None:
    tokenizer = FileTokenizer(load_vocabulary(path))
    name = "</s>" if path.suffix == ".model" else "<end>"
    meant, said = (tokenizer.encode(f"the{name}", add_special=False, parse_special=parse) for parse in (True, False))
    assert tokenizer.vocabulary.special(meant[-1])
    assert not any(map(tokenizer.vocabulary.special, said[1:]))
    assert tokenizer.decode(meant, special=False).strip() == b"the"
    assert tokenizer.decode(meant).strip() == tokenizer.decode(said).strip() == f"the{name}".encode()
    with pytest.raises(RequestError, match="not valid Unicode"):
        tokenizer.encode("\ud83d")


def test_bos_is_added_where_the_settings_say_so(path: Path) -> None:
    (path.parent / "tokenizer_config.json").write_text('{"add_bos_token": true, "bos_token": "t"}')
    tokenizer = FileTokenizer(load_vocabulary(path))
    bos = tokenizer.vocabulary.pin.bos
    assert bos is not None
    assert tokenizer.encode("t") == [bos, *tokenizer.encode("t", add_special=False)]
