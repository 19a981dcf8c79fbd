"""Reading a file by offset through a window, while nobody promises that the file stays as it is."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest
from gguf import GGUFValueType

from pilotfish.hooks.errors import BrokenModel
from pilotfish.hooks.file_window import WINDOW_BYTES, FileWindow
from pilotfish.manifests import gguf_header
from tests.manifests.builders import tiny_gguf


def strings(*texts: bytes) -> bytes:
    return b"".join(struct.pack("<Q", len(text)) + text for text in texts)


def test_it_reads_what_the_file_holds_wherever_the_window_stands(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(os.urandom(3 * WINDOW_BYTES))
    data = path.read_bytes()
    with path.open("rb") as file:
        window = FileWindow(file)
        for at in (0, 5, WINDOW_BYTES - 3, 2 * WINDOW_BYTES, 7, 3 * WINDOW_BYTES - 8):
            assert window.read(at, 8) == data[at : at + 8]
            assert window.unpack("I", at) == struct.unpack_from("<I", data, at)
        assert window.read(1, 2 * WINDOW_BYTES) == data[1 : 2 * WINDOW_BYTES + 1]
        assert window.size == len(data)


def test_strings_are_stepped_over_across_windows(tmp_path: Path) -> None:
    path = tmp_path / "file"
    texts = [b"x" * (length * 977 % 4000) for length in range(500)]
    path.write_bytes(b"head" + strings(*texts) + b"tail")
    with path.open("rb") as file:
        assert FileWindow(file).after_strings(4, len(texts)) == 4 + len(strings(*texts))
        assert FileWindow(file).after_strings(4, 0) == 4


@pytest.mark.parametrize(("at", "length"), [(0, 101), (100, 1), (101, 0), (2**63, 1), (50, 2**62)])
def test_what_lies_beyond_the_end_is_an_error(tmp_path: Path, at: int, length: int) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(100))
    with path.open("rb") as file, pytest.raises(ValueError, match="do not fit in a file of 100 bytes"):
        FileWindow(file).read(at, length)


def test_a_file_cut_short_while_its_header_is_read_is_an_error_and_not_the_end_of_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tiny_gguf(tmp_path / "m.gguf", tokens=[f"{i:04}" * 500 for i in range(1000)])
    monkeypatch.setattr(gguf_header, "GGUFValueType", Cutting(path))
    with pytest.raises(BrokenModel, match=r"while it was read|do not fit"):
        gguf_header.read_header(path)


class Cutting:
    """GGUF's value types, until the type of the vocabulary is looked at: then the file loses all but its beginning."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self, number: int) -> GGUFValueType:
        if number == GGUFValueType.ARRAY:
            os.truncate(self.path, 100)
        return GGUFValueType(number)

    def __getattr__(self, name: str) -> GGUFValueType:
        return GGUFValueType[name]


def test_an_array_that_is_read_later_says_when_the_file_has_changed(tmp_path: Path) -> None:
    path = tiny_gguf(tmp_path / "m.gguf", tokens=["abcd", "efgh", "ijkl"], merges=None)
    array = gguf_header.read_header(path).values["tokenizer.ggml.tokens"]
    assert isinstance(array, gguf_header.ArrayRef)
    data = bytearray(path.read_bytes())
    data[array.start] = 5
    path.write_bytes(data)
    with pytest.raises(BrokenModel, match="has changed while it was read"):
        array.strings()
    os.truncate(path, array.start + 3)
    with pytest.raises(BrokenModel, match="has changed while it was read"):
        array.strings()
    path.unlink()
    with pytest.raises(BrokenModel, match="has changed while it was read"):
        array.strings()
