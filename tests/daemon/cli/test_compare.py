"""`pilotfish compare` before it runs anything: what it takes out of the model's manifest."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from pilotfish.daemon.cli import cli
from pilotfish.manifests import manifest as media
from tests.manifests.builders import tiny_gguf, write_model

COMPLETE = ("token_embd.weight", "blk.0.attn_norm.weight")


@pytest.mark.parametrize(
    ("architecture", "tensors", "found"),
    [("llama", COMPLETE, True), ("gemma4_mtp", COMPLETE, False), ("llama", ("mtp.fc.weight",), False)],
)
def test_a_draft_layer_drafts_by_itself_where_it_is_a_complete_model(home, tmp_path, architecture, tensors, found):
    target = tiny_gguf(tmp_path / "target.gguf").read_bytes()
    draft = tiny_gguf(tmp_path / "draft.gguf", architecture=architecture, tensors=tensors).read_bytes()
    write_model(home / "models", "m", [(media.MODEL, target), (media.DRAFT, draft)])
    done = CliRunner().invoke(cli, ["compare", "m", "--engine", "llama", "--only", "nothing"])
    said = str(done.exception)
    assert "--only nothing: cannot be run here; there are suffix" in said
    assert ("the bundled assistant by llama" in said) == found
