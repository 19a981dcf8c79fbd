"""Which number formats let a model try every width at load, and which compute one row in another way."""

from __future__ import annotations

from pathlib import Path

import gguf
import pytest

from pilotfish.plugins.verifiers._llama_weights import has_floats, is_uniform
from tests.manifests.builders import tiny_gguf

F32, F16, Q6_K, Q8_0 = (gguf.GGMLQuantizationType[kind] for kind in ("F32", "F16", "Q6_K", "Q8_0"))


@pytest.mark.parametrize(("kind", "uniform", "floats"), [(Q8_0, True, False), (Q6_K, False, False), (F16, True, True)])
def test_a_matrix(tmp_path: Path, kind: gguf.GGMLQuantizationType, uniform: bool, floats: bool) -> None:
    path = tiny_gguf(tmp_path / "m.gguf", tensors=("blk.0.attn_q.weight",), tensor_type=kind)
    assert (is_uniform((path,)), has_floats((path,), {})) == (uniform, floats)


@pytest.mark.parametrize(
    ("name", "floats"),
    [
        ("blk.0.attn_norm.weight", False),
        ("blk.0.ssm_conv1d.weight", False),
        ("blk.0.shortconv.conv.weight", False),
        ("blk.0.ffn_gate_exps.bias", False),
        ("blk.0.ssm_a", False),
        ("blk.0.ssm_dt.weight", True),
        ("blk.0.shortconv.in_proj.weight", True),
        ("blk.0.ffn_gate_inp.weight", True),
        ("per_layer_model_proj.weight", True),
    ],
)
def test_floats_count_where_they_are_multiplied(tmp_path: Path, name: str, floats: bool) -> None:
    assert has_floats((tiny_gguf(tmp_path / "m.gguf", tensors=(name,), tensor_type=F32),), {}) == floats


def test_floats_whose_blocks_are_computed_as_single_rows_do_not_count(tmp_path: Path) -> None:
    path = tiny_gguf(tmp_path / "m.gguf", tensors=("blk.0.ffn_gate_inp.weight",), tensor_type=F32)
    assert not has_floats((path,), {"F32": 32})
    assert has_floats((path,), {"F16": 32})
    assert has_floats((path,), {"F32": 96})  # whose rows are no multiple


def test_a_file_that_cannot_be_read_is_not_uniform(tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"no")
    assert not is_uniform((broken,))
