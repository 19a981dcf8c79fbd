"""A launch's own draft model: a complete one is a drafter, layers that need activations leave the launch to stock."""

from __future__ import annotations

from pathlib import Path

import pytest

from pilotfish.daemon.config.types import Config, Drafters
from pilotfish.daemon.runner.launch_arguments import parse
from pilotfish.daemon.runner.own_drafter import by_itself, with_own_drafter
from pilotfish.hooks.errors import UsageError
from tests.manifests.builders import tiny_gguf

COMPLETE = ("token_embd.weight", "blk.0.attn_norm.weight", "output_norm.weight")


def draft(path: Path, architecture: str = "llama", tensors=COMPLETE, **more) -> Path:
    return tiny_gguf(path / "draft.gguf", architecture=architecture, tensors=tensors, **more)


def test_a_complete_model_drafts(tmp_path):
    file = draft(tmp_path)
    launch = parse(["-m", "m", "--spec-type", "draft-simple", "-md", str(file), "--spec-draft-n-max", "4"], {})
    assert launch.draft == file
    drafters = with_own_drafter(Config(), launch.draft).drafters
    assert drafters.order == ("suffix", "llama")
    assert drafters.tables["llama"]["model"] == str(file)


OLLAMAS = ("--spec-type", "draft-mtp", "--spec-draft-n-max", "4", "--spec-draft-backend-sampling")


def test_ollama_calls_every_draft_layer_mtp_and_the_file_says_what_it_is(tmp_path):
    file = draft(tmp_path)
    words = ["-m", "m", *OLLAMAS, "--spec-draft-model", str(file)]
    assert parse(words, {}).draft == file
    assert by_itself(words) == [word.replace("draft-mtp", "draft-simple") for word in words]
    for needs_activations in (["-m", "m", *OLLAMAS], [*words[:-1], str(draft(tmp_path, "gemma4-assistant"))]):
        with pytest.raises(UsageError, match="start the stock"):
            parse(needs_activations, {})


@pytest.mark.parametrize(
    ("what", "why"),
    [
        ({"architecture": "eagle3"}, "need the model's activations"),
        ({"architecture": "gemma4-assistant"}, "need the model's activations"),
        ({"tensors": ("blk.0.nextn.eh_proj.weight",)}, "no complete model"),
        ({"tokens": None, "merges": None}, "no complete model"),
    ],
)
def test_what_cannot_draft_alone_leaves_the_launch_to_stock(tmp_path, what, why):
    with pytest.raises(UsageError, match=why):
        parse(["-m", "m", "--spec-draft-model", str(draft(tmp_path, **what))], {})


def test_a_missing_or_broken_file_leaves_it_to_stock_too(tmp_path):
    with pytest.raises(UsageError, match="--model-draft"):
        parse(["-m", "m", "--model-draft", str(tmp_path / "none.gguf")], {})


def test_the_users_own_choice_of_that_drafter_stands(tmp_path):
    config = Config(drafters=Drafters(("llama",), {"llama": {"model": "small"}}))
    assert with_own_drafter(config, draft(tmp_path)) == config
    assert with_own_drafter(config, None) is config
    beside = Config(drafters=Drafters(("suffix",), {"llama": {"threads": 2}}))
    assert with_own_drafter(beside, tmp_path).drafters.tables["llama"] == {"threads": 2, "model": str(tmp_path)}
