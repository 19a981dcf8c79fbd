"""What leads back to an earlier state, where the memory cannot be cut."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pilotfish.hooks.types import EngineOptions, TargetPin
from pilotfish.plugins.verifiers.llama import LlamaVerifier
from tests.plugins.verifiers.tiny_gguf import write_mamba

pytestmark = pytest.mark.model


def test_the_copy_before_a_block_is_void_once_a_mark_led_back_behind_it(
    pin_of: Callable[[Path], TargetPin], tmp_path: Path
) -> None:
    """Another history may then have a forward that begins at the same place."""
    engine = LlamaVerifier().load(pin_of(write_mamba(tmp_path / "m.gguf")), None, EngineOptions(n_ctx=256, threads=1))
    try:
        context = engine._slots[0].context
        assert context.memory.restores

        context.feed([5, 6, 7])
        context.mark()
        context.feed([8])
        context.forward([9, 10], 2)
        assert context.cut(3)

        context.feed([20])
        context.step(9)
        assert not context.cut(4), "that would be the state after 8, not after 20"
    finally:
        engine.close()
