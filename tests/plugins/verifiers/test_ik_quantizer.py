"""ik_llama.cpp's own quantizer writes what its engine reads, and says why where it cannot."""

from __future__ import annotations

from pathlib import Path

import pytest

from pilotfish.hooks.errors import EngineError
from pilotfish.manifests.gguf import read_metadata
from pilotfish.plugins._ik.quantizer import requantize

pytest.importorskip("ik_llama_cpp", reason="ik-llama-cpp-python comes for Linux on x86-64 only")


def test_a_model_is_written_in_another_format(smollm2_path: Path, tmp_path: Path) -> None:
    requantize(smollm2_path, tmp_path / "made" / "small.gguf", "Q4_0")
    assert read_metadata(tmp_path / "made" / "small.gguf").quantization == "Q4_0"
    assert [path.name for path in (tmp_path / "made").iterdir()] == ["small.gguf"]


@pytest.mark.parametrize(("text", "kind"), [("no model", "Q4_0"), (None, "Q99")])
def test_what_cannot_be_written_leaves_nothing_behind(smollm2_path: Path, tmp_path: Path, text: str, kind: str) -> None:
    source = smollm2_path
    if text is not None:
        source = tmp_path / "source.gguf"
        source.write_text(text)
    with pytest.raises(EngineError, match=f"could not be written as {kind}"):
        requantize(source, tmp_path / "made" / "small.gguf", kind)
    assert list((tmp_path / "made").iterdir()) == []
