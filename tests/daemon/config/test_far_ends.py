"""`[engine] rpc` and what goes with it."""

from __future__ import annotations

import pytest

from pilotfish.daemon.config.reader import parse, to_table
from pilotfish.hooks.errors import ConfigError

SPREAD = {"engine": {"rpc": ["10.0.0.2:50052", "box"], "tensor_split": [1, 2.5], "choice": "ik"}}


def test_they_are_written_in_full_and_only_stocks_library_reaches_them():
    config = parse(SPREAD)
    assert config.engine.rpc == ("10.0.0.2:50052", "box:50052")
    assert config.engine.tensor_split == (1.0, 2.5)
    assert config.engines == ("llama",)
    assert "far ends" in config.why_not_chosen


def test_a_model_may_have_others_or_none():
    config = parse({**SPREAD, "models": {"small": {"rpc": []}, "large": {"rpc": ["c:1"]}}})
    assert config.for_model("small").engine.rpc == ()
    assert config.for_model("small").engines == ("ik",)
    assert config.for_model("large").engine.rpc == ("c:1",)
    assert config.for_model("other").engine.rpc == config.engine.rpc


def test_without_them_all_is_computed_here():
    config = parse({**SPREAD, "models": {"large": {"rpc": ["c:1"], "max_width": 4}}}).without_far_ends
    assert config.engine.rpc == config.for_model("large").engine.rpc == ()
    assert config.for_model("large").speculation.max_width == 4
    assert config.engines == ("ik",)


def test_a_config_that_is_passed_on_says_the_same():
    config = parse({**SPREAD, "models": {"small": {"rpc": []}}})
    assert parse(to_table(config)) == config


@pytest.mark.parametrize(
    ("engine", "complaint"),
    [
        ({"rpc": "box"}, "engine.rpc: expected a list of strings"),
        ({"rpc": ["[::1]:50052"]}, "engine.rpc: .*IPv6"),
        ({"rpc": ["localhost", "127.0.0.1:50052"]}, "engine.rpc: .*same far end"),
        ({"rpc": [f"a:{port}" for port in range(1, 18)]}, "engine.rpc: .*at most 16"),
        ({"tensor_split": [1, "much"]}, "engine.tensor_split: expected numbers"),
        ({"tensor_split": [-1]}, "engine.tensor_split: expected numbers from 0"),
        ({"tensor_split": 3}, "engine.tensor_split: expected a list of numbers"),
        ({"rpc_deadline_s": 0}, "engine.rpc_deadline_s: expected 1 to"),
    ],
)
def test_mistakes_are_named(engine, complaint):
    with pytest.raises(ConfigError, match=complaint):
        parse({"engine": engine})
