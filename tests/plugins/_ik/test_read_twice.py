"""What weights that are not mapped take beyond their files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pilotfish.hooks.types import EngineOptions, TargetPin
from pilotfish.manifests.pins import pin_file
from pilotfish.plugins.verifiers.ik import IkVerifier
from tests.manifests.builders import tiny_gguf

EMBEDDING, OUTPUT = "token_embd.weight", "output.weight"


def pin(folder: Path, *tensors: str) -> TargetPin:
    values = {"llama.context_length": 512, "llama.block_count": 1, "llama.embedding_length": 32}
    return pin_file(tiny_gguf(folder / "model.gguf", values=values, tensors=tensors), folder)


@pytest.mark.parametrize(("tensors", "more"), [((EMBEDDING,), True), ((EMBEDDING, OUTPUT), False), ((), False)])
def test_an_embedding_that_is_also_the_output_counts_twice_unless_it_is_mapped(
    tmp_path: Path, tensors: tuple[str, ...], more: bool
) -> None:
    model, options = pin(tmp_path, "blk.0.attn_q.weight", *tensors), EngineOptions(n_ctx=256)
    mapped = IkVerifier().footprint(model, options).weights
    read = IkVerifier().footprint(model, replace(options, use_mmap=False)).weights
    assert mapped == model.weights[0].size
    assert (read > mapped) is more
