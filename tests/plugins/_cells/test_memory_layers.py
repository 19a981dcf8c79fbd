"""What is known from a header of the memory that a model will take."""

from __future__ import annotations

from pathlib import Path

import pytest

from pilotfish.hooks.types import EngineOptions, EngineSetting, TargetPin, TokenizerPin, WeightPin
from pilotfish.plugins._cells import snapshots
from pilotfish.plugins._cells.footprint import footprint_in
from pilotfish.plugins._cells.memory_layers import MemoryLayers, experts, memory_layers
from pilotfish.plugins._cells.snapshots import NUMBERS, snapshots_for
from tests.manifests.builders import tiny_gguf

LAYERS, HEADS, KV, SIZE = 6, 4, 2, 16
SETTING = EngineSetting("bf16", "f16")


def pin(
    path: Path, architecture: str = "llama", tensors: tuple[str, ...] = (), size: int = 1000, **values
) -> TargetPin:
    said = {"block_count": LAYERS, "embedding_length": HEADS * SIZE, "attention.head_count": HEADS} | values
    file = tiny_gguf(
        path / "m.gguf",
        architecture=architecture,
        tensors=("token_embd.weight", *tensors),
        values={f"{architecture}.{key.replace('__', '.')}": value for key, value in said.items()},
    )
    return TargetPin("m", (WeightPin("sha256:0", file, size),), TokenizerPin("u", "gpt2", 100))


def test_every_layer_keeps_every_cell_where_nothing_else_is_said(tmp_path):
    assert memory_layers(pin(tmp_path, attention__head_count_kv=KV)) == MemoryLayers(heads=LAYERS * KV)


@pytest.mark.parametrize(
    ("architecture", "said", "windowed"),
    [
        ("gemma2", {}, 3),
        ("gemma3", {}, 5),
        ("gpt-oss", {}, 3),
        ("gemma4", {"attention__sliding_window_pattern": [True, True, True, False, True, False]}, 4),
        ("other", {"attention__sliding_window_pattern": 3}, 4),
        ("unknown", {}, 0),
    ],
)
def test_layers_with_windows_by_the_file_or_the_architecture(tmp_path, architecture, said, windowed):
    values = {"attention__head_count_kv": KV, "attention__sliding_window": 512, **said}
    found = memory_layers(pin(tmp_path, architecture, **values))
    assert (found.heads, found.window_heads, found.window) == ((LAYERS - windowed) * KV, windowed * KV, 512)


def test_layers_with_a_state_are_counted_by_their_tensors(tmp_path):
    tensors = ("blk.0.ssm_conv1d.weight", "blk.1.ssm_conv1d.weight", "blk.2.attn_k.weight")
    values = {"ssm__conv_kernel": 4, "ssm__inner_size": 64, "ssm__state_size": 16, "ssm__group_count": 2}
    found = memory_layers(pin(tmp_path, "qwen35", tensors, attention__head_count_kv=KV, **values))
    assert found == MemoryLayers(heads=(LAYERS - 2) * KV, state=4 * 2 * (3 * (64 + 2 * 2 * 16) + 16 * 64))


def test_short_convolutions_keep_little(tmp_path):
    values = {"shortconv__l_cache": 3, "attention__head_count_kv": [0, 0, KV, 0, 0, KV]}
    found = memory_layers(pin(tmp_path, "lfm2", ("blk.0.shortconv.conv.weight",), **values))
    assert found == MemoryLayers(heads=2 * KV, state=4 * HEADS * SIZE * 2)


def test_experts(tmp_path):
    assert experts(pin(tmp_path)) == 0
    assert experts(pin(tmp_path, expert_count=8)) == 8


def test_windows_take_the_cells_of_their_ring_where_the_engine_makes_one(tmp_path):
    target = pin(tmp_path, "gemma2", attention__head_count_kv=KV, attention__sliding_window=512)
    options = EngineOptions(n_ctx=8192, batch_size=512)
    whole, ring = (footprint_in(target, SETTING, options, "cpu", windows=small).cache for small in (False, True))
    assert whole - ring == 3 * KV * 4 * SIZE * (8192 - 1024)


def test_snapshots_are_counted_and_small_beside_the_weights(tmp_path, monkeypatch):
    assert snapshots_for(pin(tmp_path, "lfm2", ("blk.0.shortconv.conv.weight",), shortconv__l_cache=3), 16) == 15
    monkeypatch.setattr(snapshots, "ANYWAY", 0)
    values = {"ssm__conv_kernel": 4, "ssm__inner_size": 64, "ssm__state_size": 16, "ssm__group_count": 2}
    tensors = ("blk.0.ssm_conv1d.weight",)
    state = memory_layers(pin(tmp_path, "qwen35", tensors, **values)).state
    small, large = (pin(tmp_path, "qwen35", tensors, size=size, **values) for size in (5 * state, 100 * state))
    assert [snapshots_for(small, width) for width in (1, 16)] == [0, 0]
    assert [snapshots_for(large, width) for width in (1, 2, 4, 8, 16)] == [0, 1, 3, 7, 7]
    options = EngineOptions(n_ctx=256)
    many, one, none = (footprint_in(large, SETTING, options, "cpu", snapshots=n).cache for n in (7, 1, 0))
    assert many - one == 6 * state
    assert one == none  # the copy that is written back
    assert max(NUMBERS) < 16
    assert snapshots_for(pin(tmp_path, size=1 << 30), 16) == 0  # no state, none needed
