"""What the runner makes of its floor, and that it has none unless it was handed one."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from pilotfish.daemon.certify.left_to_stock import Left
from pilotfish.daemon.config.types import Engine
from pilotfish.daemon.processes.ports import free_port
from pilotfish.daemon.runner import lifetime, loading, main
from pilotfish.daemon.runner.floor import NO_FLOOR, StockServer
from pilotfish.daemon.runner.gain import NothingToGain
from pilotfish.daemon.runner.launch_arguments import parse
from pilotfish.hooks.errors import BrokenModel, EngineError
from tests.daemon.runner.scripted import ScriptedGenerator, card
from tests.fakes.rpc_servers import far_end, own


class RecordingFloor:
    """A floor that notes what is asked of it."""

    engine_log_is_read = True

    def __init__(self) -> None:
        self.events: list[object] = []

    def stock(self) -> None:
        return None

    def crashed(self, model):
        return ""

    def leave(self, launch, config, left):
        self.events.append((launch.model, left.reason, left.until is not None))

    @contextlib.contextmanager
    def loading(self, model):
        self.events.append(f"loading {model}")
        yield
        self.events.append("loaded")

    def land(self, reason, argv):
        self.events.append((reason, list(argv)))


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PILOTFISH_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("PILOTFISH_CONFIG", "")


def test_a_failure_before_the_model_is_ready_lands_on_it_and_returns_1_where_there_is_nothing(tmp_path):
    floor, words = RecordingFloor(), ["--model", str(tmp_path / "nothing.gguf"), "--port", "0", "-c", "512"]
    code = main.main(words, floor)

    loading_it, left, (reason, given) = floor.events
    assert code == 1
    assert left[0] == tmp_path / "nothing.gguf"
    assert loading_it == f"loading {tmp_path / 'nothing.gguf'}"
    assert "nothing.gguf" in reason
    assert given == words


def test_a_load_that_ends_well_is_told_to_it_before_the_runner_is_ready(monkeypatch):
    floor, ready = RecordingFloor(), threading.Event()
    generator = ScriptedGenerator()
    loaded = generator, card(generator.engine)

    def load(*given, **named):
        assert not ready.is_set()
        assert floor.events == ["loading /m"]
        return loaded

    monkeypatch.setattr(loading, "load", load)
    assert main._load(parse(["--model", "/m", "--port", "1"]), main._configured(floor), ready, floor) == loaded
    assert floor.events == ["loading /m", "loaded"]
    assert ready.is_set()


def load_over(endpoint, floor, monkeypatch):
    """Load with that far end, or without it where it is missing; what the load was told of far ends."""
    generator, told = ScriptedGenerator(), []

    def load(launch, settings, state_dir, options, **named):
        told.extend(far_end.endpoint for far_end in options.far_ends)
        return generator, card(generator.engine)

    monkeypatch.setattr(loading, "load", load)
    settings = replace(main._configured(floor), engine=Engine(rpc=(endpoint,), rpc_fallback=True))
    main._load(parse(["--model", "/m", "--port", "1"]), settings, threading.Event(), floor)
    return told


def test_a_load_that_falls_back_from_its_far_ends_counts_as_any_other_here(monkeypatch):
    floor = RecordingFloor()
    assert load_over(f"127.0.0.1:{free_port()}", floor, monkeypatch) == []
    assert floor.events == ["loading /m", "loaded"]


def test_a_load_over_far_ends_is_none_of_the_floors(monkeypatch):
    floor = RecordingFloor()
    monkeypatch.setattr(floor, "crashed", lambda model: "the last 2 loads crashed")
    with far_end(own()) as endpoint:
        assert load_over(endpoint, floor, monkeypatch) == [endpoint]
    assert floor.events == []


def test_after_crashes_here_a_load_does_not_fall_back_again(monkeypatch):
    floor = RecordingFloor()
    monkeypatch.setattr(floor, "crashed", lambda model: "the last 2 loads crashed")
    with pytest.raises(EngineError, match="/m is not loaded here without its far ends: the last 2 loads crashed"):
        load_over(f"127.0.0.1:{free_port()}", floor, monkeypatch)
    assert floor.events == []


async def test_a_server_that_cannot_be_set_up_is_a_failure_although_the_model_is_loaded(monkeypatch):
    """Nobody knows of the model before the server answers."""
    generator, ready = ScriptedGenerator(), threading.Event()

    def serving(*given, **named):
        assert ready.wait(10)
        raise OSError("too many open files")

    monkeypatch.setattr(loading, "load", lambda *given, **named: (generator, card(generator.engine)))
    monkeypatch.setattr(lifetime, "serving", serving)
    words = ["--model", "/m", "--port", "0"]
    ending = await main.serve(parse(words), words, ready)
    assert "too many open files" in ending.failure
    assert ending.stopped


def test_an_exception_that_a_future_cannot_carry_is_another_one(monkeypatch):
    def load(*given, **named):
        raise StopIteration

    monkeypatch.setattr(loading, "load", load)
    with pytest.raises(EngineError, match="StopIteration"):
        main._load(parse(["--model", "/m", "--port", "1"]), main._configured(NO_FLOOR), threading.Event(), NO_FLOOR)


@pytest.mark.parametrize(
    ("error", "left"),
    [
        (NothingToGain("no lane", Left("no lane", 1.0)), [(Path("/m"), "no lane", False)]),
        (NothingToGain("too little memory"), []),
        (BrokenModel("an unknown architecture"), [(Path("/m"), "an unknown architecture", True)]),
        (EngineError("no memory for the context"), []),
    ],
    ids=["nothing to gain", "nothing to gain now", "unknown to this engine", "failed"],
)
def test_what_will_be_the_same_at_the_next_load_is_left_to_stock(monkeypatch, error, left):
    def load(*given, **named):
        raise error

    floor = RecordingFloor()
    monkeypatch.setattr(loading, "load", load)
    with pytest.raises(type(error)):
        main._load(parse(["--model", "/m", "--port", "1"]), main._configured(floor), threading.Event(), floor)
    assert floor.events == ["loading /m", *left]


@pytest.mark.parametrize("stock", [StockServer("/stock", {}), None])
def test_a_load_must_gain_where_there_is_a_stock_server(monkeypatch, stock):
    asked = []
    generator = ScriptedGenerator()

    def load(*given, must_gain, **named):
        asked.append(must_gain)
        return generator, card(generator.engine)

    floor = RecordingFloor()
    monkeypatch.setattr(floor, "stock", lambda: stock)
    monkeypatch.setattr(loading, "load", load)
    main._load(parse(["--model", "/m", "--port", "1"]), main._configured(floor), threading.Event(), floor)
    assert asked == [stock is not None]


def test_the_engines_log_goes_to_stderr_only_where_it_is_read():
    assert main._configured(RecordingFloor()).verifiers.tables["llama"]["log"] == "stderr"
    assert "llama" not in main._configured(NO_FLOOR).verifiers.tables


def test_the_module_run_by_hand_has_no_floor_whatever_the_environment_says(tmp_path, monkeypatch):
    stock = tmp_path / "llama-server"
    stock.write_text("#!/bin/sh\necho became stock\n")
    stock.chmod(0o755)
    monkeypatch.setenv("PILOTFISH_STOCK", str(stock))
    words = ["--model", str(tmp_path / "nothing.gguf"), "--port", "0", "-c", "512"]
    command = [sys.executable, "-m", "pilotfish.daemon.runner.main", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)

    assert (done.returncode, done.stdout) == (1, "")
    assert "nothing.gguf" in done.stderr


@pytest.mark.parametrize("asked", [None, "4"])
def test_what_a_load_sets_for_numpy_is_not_what_the_stock_server_inherits(monkeypatch, asked):
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    if asked:
        monkeypatch.setenv("OPENBLAS_NUM_THREADS", asked)
    loading._import_numpy()
    assert "numpy" in sys.modules
    assert os.environ.get("OPENBLAS_NUM_THREADS") == asked


def test_a_runner_that_was_told_to_stop_lands_nowhere_although_its_load_failed(monkeypatch):
    """Nobody would be left to stop the stock server: the signal is spent."""

    def load(*given, **named):
        os.kill(os.getpid(), signal.SIGTERM)
        noticed.wait(10)
        raise NothingToGain("no lane")

    class Noticing(asyncio.Event):
        def set(self) -> None:
            super().set()
            noticed.set()

    floor, noticed = RecordingFloor(), threading.Event()
    monkeypatch.setattr(loading, "load", load)
    monkeypatch.setattr(main.asyncio, "Event", Noticing)
    assert main.main(["--model", "/m", "--port", "0"], floor) == 0
    assert floor.events == ["loading /m"]
