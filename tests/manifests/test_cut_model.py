"""A model cut to its first blocks is a whole GGUF: the same words, the same bytes of what is kept, nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import gguf
import numpy as np
import pytest

from pilotfish.manifests.cut_model import CutModel
from pilotfish.manifests.gguf_header import read_header

SMALL, LARGE = (32, 64), (64, 64)


def model(path: Path, blocks: Mapping[int, Mapping[str, tuple[int, int]]], *, said: int | None = None) -> Path:
    """A GGUF with blocks of F32 tensors, each of other numbers. `said`: the number of blocks in its metadata."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_token_list(["a", "b"])
    writer.add_block_count(len(blocks) if said is None else said)
    writer.add_context_length(77)
    random = np.random.default_rng(5)
    writer.add_tensor("token_embd.weight", random.random((2, 64), np.float32))
    for number, tensors in blocks.items():
        for name, shape in tensors.items():
            writer.add_tensor(f"blk.{number}.{name}", random.random(shape, np.float32))
    writer.add_tensor("output_norm.weight", random.random(7, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def numbers(path: Path) -> dict[str, bytes]:
    return {tensor.name: tensor.data.tobytes() for tensor in gguf.GGUFReader(path).tensors}


def test_blocks_of_one_kind_leave_the_first(tmp_path: Path) -> None:
    whole = model(tmp_path / "whole.gguf", {number: {"attn_q.weight": SMALL} for number in range(5)})
    cut = CutModel.of(read_header(whole))
    assert cut is not None
    assert (cut.kept, cut.blocks) == (1, 5)
    cut.write(tmp_path / "cut.gguf")
    header = read_header(tmp_path / "cut.gguf")
    assert header.values["llama.block_count"] == 1
    assert header.values["llama.context_length"] == 77
    known = numbers(whole)
    assert numbers(tmp_path / "cut.gguf") == {name: known[name] for name in numbers(tmp_path / "cut.gguf")}
    assert set(numbers(tmp_path / "cut.gguf")) == {"token_embd.weight", "blk.0.attn_q.weight", "output_norm.weight"}
    assert cut.share == pytest.approx(
        sum(map(len, numbers(tmp_path / "cut.gguf").values())) / sum(map(len, known.values()))
    )


@pytest.mark.parametrize(
    ("other", "kept"),
    [({1: {"attn_q.weight": LARGE}}, 2), ({3: {"attn_q.weight": SMALL, "attn_k.weight": SMALL}}, 4), ({}, 1)],
)
def test_every_kind_of_block_is_kept(tmp_path: Path, other: dict[int, dict[str, tuple[int, int]]], kept: int) -> None:
    blocks = {number: {"attn_q.weight": SMALL} for number in range(6)} | other
    cut = CutModel.of(read_header(model(tmp_path / "whole.gguf", blocks)))
    assert cut is not None
    assert cut.kept == kept
    cut.write(tmp_path / "cut.gguf")
    assert len(read_header(tmp_path / "cut.gguf").tensors) == 2 + sum(len(blocks[number]) for number in range(kept))


@pytest.mark.parametrize(
    ("blocks", "said"),
    [({0: {"attn_q.weight": SMALL}, 2: {"attn_q.weight": SMALL}}, 2), ({0: {"attn_q.weight": SMALL}}, 3), ({}, 0)],
)
def test_a_file_that_counts_its_blocks_otherwise_is_not_cut(
    tmp_path: Path, blocks: dict[int, dict[str, tuple[int, int]]], said: int
) -> None:
    assert CutModel.of(read_header(model(tmp_path / "whole.gguf", blocks, said=said))) is None


def test_a_file_that_is_cut_short_meanwhile_is_an_error(tmp_path: Path) -> None:
    whole = model(tmp_path / "whole.gguf", {0: {"attn_q.weight": SMALL}})
    cut = CutModel.of(read_header(whole))
    assert cut is not None
    with whole.open("r+b") as file:
        file.truncate(whole.stat().st_size - 40)
    with pytest.raises(OSError, match="was cut short"):
        cut.write(tmp_path / "cut.gguf")
