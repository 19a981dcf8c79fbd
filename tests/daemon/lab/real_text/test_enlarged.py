"""A small model made large says the same, bit for bit; what there is no room for is not begun."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from gguf import GGUFReader

from pilotfish.daemon.lab.real_text import enlarged as enlarging
from pilotfish.daemon.lab.real_text.corner import planned_bytes, write_enlarged
from pilotfish.daemon.lab.real_text.enlarged import LIKE, enlarged, make_enlarged, need_room, rows_of
from pilotfish.daemon.lab.real_text.likeness import Likeness
from pilotfish.daemon.lab.subjects import variant
from pilotfish.daemon.lab.tiny_models.catalogue import architectures
from pilotfish.daemon.lab.tiny_models.making import tiny_model
from pilotfish.hooks.errors import EngineError, UsageError
from pilotfish.manifests.gguf_header import read_header
from tests.plugins.verifiers.tiny_gguf import write_llama

SMOLLM2 = Likeness(576, 9, 3, 64, 1536, 30, 49152)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("PILOTFISH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PILOTFISH_STATE", str(tmp_path / "state"))


@pytest.fixture
def tiny(tmp_path):
    """A llama of one block and 256 numbers a token."""
    return write_llama(tmp_path / "tiny.gguf")


def tensors_of(path):
    return {tensor.name: tensor for tensor in GGUFReader(path).tensors}


@pytest.mark.parametrize(("like", "low", "high"), [("1b", 0.9e9, 1.1e9), ("3b", 3.1e9, 3.3e9), ("8b", 7.8e9, 8.2e9)])
def test_every_size_is_reached_with_whole_blocks_of_hidden_rows(like, low, high):
    size = SMOLLM2.widened().filled(LIKE[like].parameters, LIKE[like].deeper * SMOLLM2.blocks)
    assert low < size.parameters < high
    assert size.hidden % 256 == 0
    assert size.embd % 256 == 0
    assert (size.heads // size.heads_kv, size.head) == (3, 64)


def test_a_model_that_is_large_already_keeps_its_hidden_rows():
    assert SMOLLM2.filled(1e6, 30).hidden == SMOLLM2.hidden


def test_the_packaged_model_has_these_dimensions(smollm2_path):
    assert Likeness.of(read_header(smollm2_path)) == SMOLLM2


def test_the_original_stands_in_the_corner_and_zeros_around_it(tiny, tmp_path):
    own = Likeness.of(read_header(tiny))
    size = replace(own.widened(), hidden=own.hidden + 256, blocks=2)
    write_enlarged(tiny, tmp_path / "big.gguf", size)
    small, big = tensors_of(tiny), tensors_of(tmp_path / "big.gguf")
    assert len(big) == len(small) + 9  # a block more
    down = big["blk.0.ffn_down.weight"].data
    assert down.shape == (1024, 512)
    assert np.array_equal(down[:256, :256], small["blk.0.ffn_down.weight"].data)
    assert not down[256:].any()
    assert not down[:, 256:].any()
    assert np.array_equal(big["output_norm.weight"].data[:256], small["output_norm.weight"].data / 2)
    assert not big["blk.1.attn_output.weight"].data.any()
    values = read_header(tmp_path / "big.gguf").values
    assert values["llama.attention.layer_norm_rms_epsilon"] == pytest.approx(1e-6 / 4)
    assert (values["llama.block_count"], values["llama.attention.head_count"]) == (2, 16)
    assert planned_bytes(tiny, size) <= (tmp_path / "big.gguf").stat().st_size


def test_other_architectures_and_sizes_are_refused_by_name(tmp_path, tiny):
    other = write_llama(tmp_path / "other.gguf", "qwen2")
    with pytest.raises(UsageError, match=r"other.gguf: only models of the architecture 'llama'"):
        Likeness.of(read_header(other))
    with pytest.raises(UsageError, match="like 2b: unknown; there are 1b, 3b, 8b"):
        enlarged(tiny, "2b", "Q4_0")


@pytest.mark.parametrize(("disk", "memory", "what"), [(1e9, 9e9, "on the disk of"), (9e9, 1e9, "of memory")])
def test_too_little_room_is_said_before_anything_is_written(monkeypatch, tmp_path, disk, memory, what):
    monkeypatch.setattr(enlarging.shutil, "disk_usage", lambda folder: SimpleNamespace(free=disk))
    monkeypatch.setattr(enlarging.psutil, "virtual_memory", lambda: SimpleNamespace(available=memory))
    with pytest.raises(EngineError, match=rf"4.6 GB are needed {what}.* 1.0 GB are free; choose a smaller size"):
        need_room(4_000_000_000, tmp_path)
    need_room(500_000_000, tmp_path)


@pytest.fixture
def plain():
    """A tiny llama with a real vocabulary, as F16."""
    (architecture,) = architectures(["llama"])
    return variant(tiny_model(replace(architecture, entries=4096), "F32"), "F16")


@pytest.mark.model
@pytest.mark.parametrize("kind", ["F16", "Q4_0", "Q8_0", "Q4_K_M"])
def test_the_large_models_rows_are_the_small_ones(plain, tmp_path, kind):
    own = Likeness.of(read_header(plain))
    size = replace(own.widened(), hidden=own.hidden + 512, blocks=own.blocks + 2)
    make_enlarged(plain, tmp_path / "big.gguf", size, kind)  # which compares
    assert rows_of(tmp_path / "big.gguf") == rows_of(variant(plain, kind))
    assert [path.name for path in tmp_path.glob("*.gguf")] == ["big.gguf"]


@pytest.mark.model
def test_rows_that_differ_leave_nothing_behind(plain, tmp_path, monkeypatch):
    monkeypatch.setattr(enlarging, "rows_of", lambda path: [path.name.encode()])
    with pytest.raises(EngineError, match=r"the rows of big.gguf are not those of"):
        make_enlarged(plain, tmp_path / "big.gguf", Likeness.of(read_header(plain)).widened(), "F16")
    assert list(tmp_path.glob("*.gguf")) == []
