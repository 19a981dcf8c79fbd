"""Models with experts, whose lane begins with two rows: what is padded away changes nothing."""

from __future__ import annotations

import pytest

from pilotfish.daemon.lab.tiny_models.catalogue import architectures
from pilotfish.daemon.lab.tiny_models.making import tiny_model
from pilotfish.hooks.types import EngineSetting, Lane
from tests.engines import LoadEngine
from tests.plugins.verifiers.courses import course, ids

pytestmark = pytest.mark.model

PADDED = Lane("padded", (2, 3, 4, 8, 16), EngineSetting("bf16", "f16"))


@pytest.mark.parametrize("name", ["qwen3moe", "gpt-oss", "lfm2moe"])
def test_in_a_padded_lane_rows_are_plains_whatever_is_drafted(load_engine: LoadEngine, name: str) -> None:
    engine = load_engine(tiny_model(architectures([name])[0], "Q8_0"), PADDED, batch_size=64)
    try:
        prompt = [7 * i % 4000 + 5 for i in range(100)]
        plain, _ = course(engine, prompt, 170)
        for seed in (1, 2):
            assert course(engine, prompt, 170, ids(plain), seed=seed)[0] == plain
    finally:
        engine.close()
