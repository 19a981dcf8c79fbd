import contextlib
import os
import struct
import subprocess
import sys
import tempfile
import time
import tracemalloc
from pathlib import Path

import gguf
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotfish.hooks.errors import BrokenModel
from pilotfish.manifests import gguf_header
from pilotfish.manifests.gguf import read_metadata
from pilotfish.manifests.remembered import SETTLED_SECONDS
from pilotfish.manifests.tokenizer import fingerprint_tokenizer
from tests.manifests.builders import header, text, tiny_gguf

STRING, ARRAY, UINT32 = 8, 9, 4


def key(name: str, kind: int, payload: bytes = b"") -> bytes:
    return text(name) + struct.pack("<I", kind) + payload


def test_metadata_is_what_the_writer_wrote(tmp_path):
    path = tiny_gguf(
        tmp_path / "m.gguf",
        values={"llama.context_length": 512, "llama.block_count": 1, "tokenizer.chat_template": "{{ x }}"},
    )
    found = read_metadata(path)
    assert (found.architecture, found.quantization, found.context_length, found.block_count) == (
        "llama",
        "Q4_0",
        512,
        1,
    )
    assert found.chat_template == "{{ x }}"
    assert found.matrix_types == {"Q4_0": 2}
    assert found.array("tokenizer.ggml.tokens").strings() == [b"<s>", b"</s>", b"a", b"b"]
    assert not found.is_embedding


def test_arrays_of_numbers_are_read_when_asked(tmp_path):
    path = tiny_gguf(tmp_path / "m.gguf", scores=[0.0, 0.5, -1.0, 2.0])
    assert read_metadata(path).array("tokenizer.ggml.scores").numbers() == (0.0, 0.5, -1.0, 2.0)


def test_an_array_knows_what_it_holds(tmp_path):
    found = read_metadata(tiny_gguf(tmp_path / "m.gguf", scores=[0.0] * 4))
    with pytest.raises(ValueError, match="no numbers"):
        found.array("tokenizer.ggml.tokens").numbers()
    with pytest.raises(ValueError, match="no strings"):
        found.array("tokenizer.ggml.scores").strings()


def test_draft_and_vision_tensors_are_counted_by_name(tmp_path):
    names = ("token_embd.weight", "blk.3.nextn.eh_proj.weight", "mtp.fc.weight", "v.blk.0.attn_q.weight", "mm.0.weight")
    found = read_metadata(tiny_gguf(tmp_path / "m.gguf", tensors=names, values={"llama.nextn_predict_layers": 0}))
    assert found.draft_tensors == ("blk.3.nextn.eh_proj.weight", "mtp.fc.weight")
    assert found.vision_tensors == 2


@pytest.mark.parametrize(
    ("architecture", "values"),
    [("bert", {}), ("qwen3", {"qwen3.pooling_type": 3}), ("llama", {"llama.pooling_type": 0})],
)
def test_embedding_models_are_recognised(tmp_path, architecture, values):
    assert read_metadata(tiny_gguf(tmp_path / "m.gguf", architecture=architecture, values=values)).is_embedding


BROKEN = {
    "no bytes": (b"", "is empty"),
    "zeros": (bytes(4096), "not a GGUF file"),
    "another format": (b"PK\x03\x04" + bytes(100), "not a GGUF file"),
    "cut in the magic": (b"GG", "not a GGUF file"),
    "cut in the version": (b"GGUF\x03", "byte 4: version"),
    "big-endian": (header(version=0x03000000), "version: 0x03000000 .*big-endian"),
    "version 1": (header(version=1), "version: 0x00000001"),
    "version of tomorrow": (header(version=9), "version: 0x00000009"),
    "absurd tensor count": (header(tensors=2**60), "tensor count"),
    "absurd key count": (header(keys=2**63), "key count"),
    "more keys than bytes": (header(bytes(64), keys=1000), "key count"),
    "absurd key length": (
        header(struct.pack("<Q", 2**62), bytes(64), keys=1),
        "key 0: a string of 4611686018427387904",
    ),
    "key that is no text": (header(struct.pack("<Q", 2), b"\xff\xfe", bytes(16), keys=1), "key 0: .*not UTF-8"),
    "key of a megabyte": (header(text("k" * (1 << 20)), bytes(16), keys=1), "key 0: a name of 1048576 bytes"),
    "unknown value type": (header(key("a.b", 77), keys=1), "key a.b: unknown value type 77"),
    "absurd string": (header(key("a.b", STRING, struct.pack("<Q", 2**63)), keys=1), "key a.b: a string of"),
    "unknown array type": (
        header(key("a.b", ARRAY, struct.pack("<IQ", 99, 1)), keys=1),
        "key a.b: unknown value type 99",
    ),
    "array of arrays": (header(key("a.b", ARRAY, struct.pack("<IQ", 9, 1)), keys=1), "key a.b: an array of arrays"),
    "absurd array": (header(key("a.b", ARRAY, struct.pack("<IQ", UINT32, 2**62)), keys=1), "key a.b: an array of"),
    "absurd string array": (
        header(key("a.b", ARRAY, struct.pack("<IQ", STRING, 2**61)), keys=1),
        "key a.b: an array of",
    ),
    "absurd element": (
        header(key("a.b", ARRAY, struct.pack("<IQQ", STRING, 2, 2**62) + bytes(64)), keys=1),
        "key a.b: the file ends before string 1",
    ),
    "absurd last element": (
        header(key("a.b", ARRAY, struct.pack("<IQQ", STRING, 1, 500)), keys=1),
        "key a.b: the last of 1 strings",
    ),
    "the same key twice": (header(key("a.b", UINT32, bytes(4)) * 2, keys=2), "a.b appears twice"),
    "alignment of three": (
        header(key("general.alignment", UINT32, struct.pack("<I", 3)), keys=1),
        "general.alignment: 3 is not a power of two",
    ),
    "nine dimensions": (header(text("t"), struct.pack("<I", 9), bytes(200), tensors=1), "tensor t: 9 dimensions"),
    "a tensor beyond the end": (
        header(text("t"), struct.pack("<IQIQ", 1, 64, 0, 2**40), tensors=1),
        "tensor t: its data would end at byte",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_is_a_typed_error_that_names_file_model_and_place(tmp_path, name):
    data, problem = BROKEN[name]
    path = tmp_path / "sha256-broken"
    path.write_bytes(data)
    with pytest.raises(BrokenModel, match=problem) as error:
        read_metadata(path, "smollm2:135m")
    assert f"{path} of smollm2:135m" in str(error.value)


def test_a_broken_file_costs_no_memory(tmp_path):
    path = tmp_path / "m.gguf"
    path.write_bytes(header(text("a.b"), struct.pack("<IIQ", ARRAY, STRING, 2**40), bytes(1 << 20), keys=1))
    tracemalloc.start()
    with pytest.raises(BrokenModel):
        read_metadata(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 20


def test_strings_beyond_any_real_header_are_refused(tmp_path):
    path = tmp_path / "m.gguf"
    path.write_bytes(header(key("a.b", STRING, text("x" * (40 << 20))), keys=1))
    with pytest.raises(BrokenModel, match=r"key a.b: a string of 41943040 bytes"):
        read_metadata(path)


def test_a_truncated_download_is_noticed_wherever_it_was_cut(tmp_path):
    whole = tiny_gguf(tmp_path / "whole.gguf").read_bytes()
    path = tmp_path / "cut.gguf"
    for length in range(1, len(whole), 7):
        path.write_bytes(whole[:length])
        with pytest.raises(BrokenModel, match=str(path)):
            read_metadata(path)


@given(st.data())
def test_a_damaged_byte_is_read_as_something_or_refused(data):
    whole = bytearray(_WHOLE)
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.gguf"
        path.write_bytes(whole)
        with contextlib.suppress(BrokenModel):
            fingerprint_tokenizer(read_metadata(path))


def _whole() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        return tiny_gguf(Path(folder) / "m.gguf", scores=[0.0] * 4, values={"llama.context_length": 512}).read_bytes()


_WHOLE = _whole()


def test_a_missing_file_and_a_folder_are_typed_errors(tmp_path):
    for path in (tmp_path / "missing", tmp_path):
        with pytest.raises(BrokenModel, match="cannot be read"):
            read_metadata(path)


@pytest.mark.parametrize("kind", ["Q4_0", "Q8_0", "Q4_K", "Q6_K", "F16", "BF16"])
def test_matrix_types_agree_with_the_gguf_package(tmp_path, kind):
    path = tiny_gguf(tmp_path / "m.gguf", tensor_type=gguf.GGMLQuantizationType[kind])
    reader = gguf.GGUFReader(path)
    found = read_metadata(path)
    assert found.matrix_types == {reader.tensors[0].tensor_type.name: len(reader.tensors)}
    assert found.parameter_count == sum(tensor.n_elements for tensor in reader.tensors)


@pytest.mark.model
def test_a_real_model(smollm2):
    found = read_metadata(smollm2)
    assert (found.architecture, found.quantization, found.context_length) == ("llama", "Q4_1", 8192)
    assert (found.block_count, found.embedding_length, found.parameter_count) == (30, 576, 134515008)
    assert found.matrix_types == {"Q4_1": 210, "Q8_0": 1}
    assert "<|im_start|>" in found.chat_template
    assert len(found.array("tokenizer.ggml.tokens").strings()) == 49152


@pytest.mark.model
def test_a_real_vocabulary_is_left_in_the_file(smollm2):
    tracemalloc.start()
    found = read_metadata(smollm2)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found.array("tokenizer.ggml.tokens").count == 49152
    assert peak < 1 << 20


def test_a_header_is_walked_once_as_long_as_its_file_stays(tmp_path, monkeypatch):
    path = tiny_gguf(tmp_path / "model.gguf", architecture="first")
    os.utime(path, (1, 1))
    time.sleep(2 * SETTLED_SECONDS)  # what was changed a moment ago may change again unseen
    walked = []
    walk = gguf_header._walk
    monkeypatch.setattr(gguf_header, "_walk", lambda path, where: walked.append(where) or walk(path, where))

    assert [read_metadata(path).architecture for _ in range(3)] == ["first"] * 3
    assert len(walked) == 1
    tiny_gguf(path, architecture="other")
    assert [read_metadata(path).architecture for _ in range(2)] == ["other"] * 2, "not even a moment later"


def test_looking_at_a_header_imports_no_more_than_it_needs():
    said = "import sys, pilotfish.manifests.gguf; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-P", "-c", said], capture_output=True, text=True, check=True)
    assert not {"numpy", "yaml", "gguf"} & set(done.stdout.split())
