"""Files of places where forwards part: written, read, refused, and looked at by a certification."""

from __future__ import annotations

import json

import pytest

from pilotfish.daemon.certify.certification import certify
from pilotfish.daemon.certify.reproductions import (
    SCHEMA,
    ForwardShape,
    PastRound,
    Reproduction,
    read_reproduction,
    write_reproduction,
)
from pilotfish.daemon.lab.fakes import fake_pin
from pilotfish.hooks.errors import UsageError
from pilotfish.hooks.types import EngineOptions, EngineSetting
from pilotfish.plugins.verifiers.llama import LlamaVerifier

SETTING = EngineSetting("bf16", "f16", None, environment=(("GGML_X", "0"),))
FULL = Reproduction(
    "m:1b",
    (5, 6, 7, 8),
    ForwardShape(SETTING, 1),
    ForwardShape(EngineSetting(), 3),
    (9, 10),
    2,
    (PastRound(3, (7, 9), 1), PastRound(1, (), 1)),
    (1, 2, 3),
    ("sha256:aa",),
    1024,
    2,
    256,
    7,
)
LEAST = {"schema": SCHEMA, "model": "m", "prefix": [1, 2], "forwards": [{"width": 1}, {"width": 5}]}


def test_what_is_written_is_read(tmp_path):
    write_reproduction(tmp_path / "r.json", FULL)
    assert read_reproduction(tmp_path / "r.json") == FULL


def test_a_hand_written_one_needs_ids_and_two_forwards(tmp_path):
    shapes = [{"width": 1}, {"width": 5, "setting": {"cache_type_k": "bf16"}}]
    (tmp_path / "r.json").write_text(json.dumps({**LEAST, "forwards": shapes}))
    found = read_reproduction(tmp_path / "r.json")
    assert found.plain == ForwardShape(EngineSetting(), 1)
    assert found.other == ForwardShape(EngineSetting("bf16"), 5)
    assert (found.prompt, found.rounds, found.threads) == (0, (), None)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"schema": "other/1"}, "its schema is 'other/1'"),
        ({"prefix": []}, "there are none"),
        ({"prefix": [1, -2]}, "not whole numbers"),
        ({"prefix": "ab"}, "prefix is 'ab'"),
        ({"following": [-2]}, "not whole numbers"),
        ({"threads": "two"}, "threads is 'two'"),
        ({"batch_size": 0}, "a prompt block of 0 ids"),
        ({"gpu_layers": -1}, "-1 layers on a GPU"),
        ({"forwards": [{"width": 1}, {"width": "5"}]}, "width is '5'"),
        ({"forwards": [{"width": 1}]}, "not enough values"),
        ({"forwards": [{"width": 0}, {"width": 2}]}, "one token at least"),
        ({"forwards": [{"width": 1, "setting": {"cache": "f16"}}, {"width": 2}]}, "not .*cache"),
        ({"colour": "red"}, "'colour' is no field"),
        ({"prompt": 3}, "a prompt of 3 of 2 ids"),
        ({"prompt": 1, "rounds": [{"width": 3, "proposed": [2], "committed": 2}]}, "not as long as the prefix"),
        ({"prompt": 1, "rounds": [{"width": 3, "proposed": [-2], "committed": 1}]}, "not whole numbers"),
        ({"prompt": 1, "rounds": [{"width": 3, "proposed": [], "committed": 2}]}, "commits 2 ids after 0 proposals"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_with_its_name(tmp_path, change, why):
    path = tmp_path / "r.json"
    path.write_text(json.dumps({**LEAST, **change}))
    with pytest.raises(UsageError, match=rf"r\.json: .*{why}"):
        read_reproduction(path)


def test_what_is_no_json_is_refused(tmp_path):
    (tmp_path / "r.json").write_text("{")
    with pytest.raises(UsageError, match="not a reproduction"):
        read_reproduction(tmp_path / "r.json")


def test_a_certification_refuses_a_probe_with_ids_that_the_model_has_not(tmp_path):
    with pytest.raises(UsageError, match=r"of m:1b has the id 10, which fake:latest has not"):
        certify(fake_pin(10), [LlamaVerifier()], EngineOptions(state_dir=tmp_path), regressions=[FULL])
