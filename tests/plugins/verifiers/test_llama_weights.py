"""Which number formats let a model try every width at load."""

from __future__ import annotations

from pathlib import Path

import gguf
import pytest

from pilotfish.plugins.verifiers._llama_weights import is_uniform
from tests.manifests.builders import tiny_gguf

F32, Q6_K = gguf.GGMLQuantizationType.F32, gguf.GGMLQuantizationType.Q6_K


@pytest.mark.parametrize("name", ["blk.0.attn_norm.weight", "blk.0.ssm_conv1d.weight", "blk.0.shortconv.conv.weight"])
def test_f32_counts_where_it_is_no_matrix_product(tmp_path: Path, name: str) -> None:
    assert is_uniform((tiny_gguf(tmp_path / "m.gguf", tensors=(name,), tensor_type=F32),))


@pytest.mark.parametrize(("name", "kind"), [("blk.0.attn_q.weight", Q6_K)])
def test_a_matrix_in_another_format_does_not(tmp_path: Path, name: str, kind: gguf.GGMLQuantizationType) -> None:
    assert not is_uniform((tiny_gguf(tmp_path / "m.gguf", tensors=(name,), tensor_type=kind),))


def test_neither_does_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"no")
    assert not is_uniform((broken,))
