"""What a model that is spread over machines is loaded with."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from pilotfish.daemon.config.types import Engine
from pilotfish.daemon.farends.looking import FarEndSeen
from pilotfish.daemon.farends.rpc_protocol import DeviceSeen
from pilotfish.daemon.registry.spread import with_far_ends
from pilotfish.hooks.errors import ConfigError, EngineError
from pilotfish.hooks.types import EngineOptions, FarEnd
from tests.fakes.rpc_servers import far_end, own

OPTIONS = EngineOptions(n_ctx=512)
ENGINE = Engine(rpc=("a:1", "b:2"), tensor_split=(1.0, 3.0), rpc_deadline_s=7)


def there(endpoints):
    return [FarEndSeen(endpoint, pin=f"libraries of {endpoint}") for endpoint in endpoints]


def one_missing(endpoints):
    return [*there(endpoints[:1]), FarEndSeen(endpoints[1], trouble="b:2 refuses connections")]


def test_far_ends_are_loaded_on_with_what_computes_there():
    spread = with_far_ends(OPTIONS, ENGINE, there)
    assert spread.far_ends == (FarEnd("a:1", "libraries of a:1"), FarEnd("b:2", "libraries of b:2"))
    assert (spread.tensor_split, spread.far_end_deadline, spread.n_ctx) == ((1.0, 3.0), 7.0, 512)


GIB = 1 << 30


def with_free(*free):
    return lambda endpoints: [
        FarEndSeen(endpoint, pin="its libraries", devices=(DeviceSeen(free=each, total=64 * GIB),))
        for endpoint, each in zip(endpoints, free, strict=True)
    ]


def test_shares_are_named_and_the_same_while_free_memory_hardly_changes(monkeypatch):
    monkeypatch.setattr("pilotfish.daemon.registry.spread.accelerators.shown", list)
    monkeypatch.setattr("sys.platform", "linux")
    by_memory = replace(ENGINE, tensor_split=())
    assert with_far_ends(OPTIONS, by_memory, with_free(30 * GIB, 10 * GIB)).tensor_split == (0.75, 0.25)
    assert with_far_ends(OPTIONS, by_memory, with_free(30 * GIB - 7, 10 * GIB + 9)).tensor_split == (0.75, 0.25)
    assert with_far_ends(OPTIONS, by_memory, with_free(60 * GIB, GIB)).tensor_split == (1.0, 0.05)


@pytest.mark.parametrize(("gpus", "platform"), [(["NVIDIA H200"], "linux"), ([], "darwin")])
def test_where_this_machine_may_have_accelerators_libllama_shares_out(monkeypatch, gpus, platform):
    monkeypatch.setattr("pilotfish.daemon.registry.spread.accelerators.shown", lambda: gpus)
    monkeypatch.setattr("sys.platform", platform)
    engine = replace(ENGINE, tensor_split=())
    spread = with_far_ends(OPTIONS, engine, with_free(48 * GIB, GIB))
    assert spread.tensor_split == ()
    assert spread.far_ends[0] == FarEnd("a:1", "its libraries, memory 64.0 GiB 15/20 free")
    assert with_far_ends(OPTIONS, engine, with_free(48 * GIB + 7, GIB - 9)).far_ends == spread.far_ends
    assert with_far_ends(OPTIONS, engine, with_free(16 * GIB, GIB)).far_ends != spread.far_ends
    assert with_far_ends(OPTIONS, ENGINE, with_free(48 * GIB, GIB)).far_ends[0] == FarEnd("a:1", "its libraries")


def test_without_any_nobody_is_looked_at():
    assert with_far_ends(OPTIONS, Engine(), one_missing) is OPTIONS


def test_one_that_cannot_be_used_is_an_error_with_the_reason():
    with pytest.raises(EngineError, match="b:2 refuses connections"):
        with_far_ends(OPTIONS, ENGINE, one_missing)


def test_two_names_for_one_are_a_mistake_of_the_config_and_none_is_missing():
    with far_end(own()) as endpoint:
        names = (endpoint, endpoint.replace("127.0.0.1", "localhost"))
        with pytest.raises(ConfigError, match=f'^engine.rpc: "{names[1]}" is the same far end as "{names[0]}"'):
            with_far_ends(OPTIONS, Engine(rpc=names, rpc_fallback=True))


def test_two_names_that_stand_for_nothing_are_missing():
    with pytest.raises(EngineError, match=r"one\.invalid is not known here.*; the name two\.invalid is not known here"):
        with_far_ends(OPTIONS, Engine(rpc=("one.invalid:1", "two.invalid:1")))


def test_a_model_loads_without_them_where_the_config_says_so(caplog):
    engine = Engine(rpc=ENGINE.rpc, rpc_fallback=True)
    with caplog.at_level(logging.WARNING):
        assert with_far_ends(OPTIONS, engine, one_missing) is OPTIONS
    assert "b:2 refuses connections" in caplog.text
