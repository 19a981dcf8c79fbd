"""A drafter in a process of its own: it looks like any other, and its process ends whenever ours does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from pilotfish.daemon.config.types import Config, Drafters, Plugins
from pilotfish.daemon.drafters.hosted_drafter import DraftHostProcess, HostedDrafter
from pilotfish.daemon.processes.own_folder import OwnFolder
from pilotfish.daemon.registry.registry import Registry
from pilotfish.hooks.errors import EngineError, PilotfishError
from pilotfish.hooks.protocols import LoadableDrafter
from pilotfish.hooks.types import EngineOptions, Footprint, Placement
from pilotfish.lab.conformance import DrafterConformance
from pilotfish.lab.fakes import fake_pin
from tests.fakes.far import local_host
from tests.fakes.plugin_files import write
from tests.waiting import is_gone, wait_until

OPTIONS = EngineOptions(n_ctx=512)

# What a drafter for a child looks like: it loads something, may die, and proposes what its table says.
HEAVY = """
    import os
    from pilotfish.hooks import HistoryDrafter, Placement, hookimpl
    from pilotfish.hooks.errors import ModelNotFound
    from pilotfish.hooks.types import Footprint

    class Heavy(HistoryDrafter):
        name = "heavy"
        placement = Placement.PROCESS
        vocabulary = None

        def footprint(self, host, target, options):
            return Footprint(5, options.n_ctx)

        def load(self, host, target, options):
            if self.config.get("model") == "missing":
                raise ModelNotFound("no model 'missing'; get it with: ollama pull missing")
            assert host.state_dir and target.path.name == "fake.gguf"

        def unload(self):
            pass

        def suggest(self, tokens, k):
            if tokens[-1] == 31:
                os._exit(3)
            if tokens[-1] == 30:
                import ctypes
                ctypes.PyDLL(None).sleep(3600)  # as an engine that never gives the interpreter back
            return [self.config.get("token", 0)] * k

    @hookimpl
    def pilotfish_register_drafters(register):
        register("heavy", Heavy)
"""


@pytest.fixture
def config(tmp_path: Path) -> Config:
    folder = tmp_path / "plugins"
    folder.mkdir(mode=0o700)
    write(folder, "heavy.py", HEAVY)
    return Config(plugins=Plugins((folder,)), drafters=Drafters(("heavy",), {"heavy": {"token": 7}}))


def hosted(config: Config) -> HostedDrafter:
    drafter = Registry.load(config).drafter("heavy")
    assert isinstance(drafter, LoadableDrafter)
    return HostedDrafter(drafter, config)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostedDrafter]:
    """One child for the whole suite."""
    folder = tmp_path_factory.mktemp("plugins")
    folder.chmod(0o700)
    write(folder, "heavy.py", HEAVY)
    drafter = hosted(Config(plugins=Plugins((folder,)), drafters=Drafters(("heavy",), {"heavy": {"token": 7}})))
    drafter.load(local_host(folder), fake_pin(), OPTIONS)
    yield drafter
    drafter.unload()


def test_it_looks_like_the_drafter_it_hosts(config, tmp_path):
    drafter = hosted(config)
    assert isinstance(drafter, LoadableDrafter)
    assert (drafter.name, drafter.placement) == ("heavy", Placement.THREAD)
    assert drafter.footprint(local_host(tmp_path), fake_pin(), OPTIONS) == Footprint(5, 512)
    with pytest.raises(EngineError, match="load the drafter before"):
        drafter.open(fake_pin(), [1])
    assert drafter.status() == "heavy: its process is not started"
    drafter.unload()


def test_it_has_this_processs_config(shared):
    session = shared.open(fake_pin(), [1, 2])
    assert session.propose(2).tokens == (7, 7)
    session.close()


def test_a_process_that_dies_is_told_of_replaced_by_the_next_load_and_ended_by_unload(config, tmp_path):
    drafter = hosted(config)
    drafter.load(local_host(tmp_path), fake_pin(), OPTIONS)
    session = drafter.open(fake_pin(), [31])
    with pytest.raises(PilotfishError):
        session.propose(1)
    session.close()
    with pytest.raises(EngineError, match="heavy: its process ended with code 3"):
        drafter.open(fake_pin(), [1])
    assert not drafter.alive
    drafter.load(local_host(tmp_path), fake_pin(), OPTIONS)
    assert drafter.alive
    assert drafter.open(fake_pin(), [1]).propose(1).tokens == (7,)
    child = psutil.Process(int(drafter.status().split()[-1]))
    socket = next(Path(word) for word in child.cmdline() if word.endswith("/s"))
    assert socket.stat().st_mode & 0o777 == 0o600
    assert socket.parent.stat().st_mode & 0o777 == 0o700
    drafter.unload()
    assert not child.is_running()
    assert not socket.parent.exists()
    drafter.unload()


def test_a_load_that_fails_over_there_is_told_and_leaves_no_process(config, tmp_path):
    config.drafters.tables["heavy"]["model"] = "missing"
    drafter, before = hosted(config), psutil.Process().children()
    with pytest.raises(PilotfishError, match="get it with: ollama pull missing"):
        drafter.load(local_host(tmp_path), fake_pin(), OPTIONS)
    assert not drafter.alive
    assert psutil.Process().children() == before


def test_a_program_that_does_not_start_is_told_of(config, tmp_path):
    drafter = Registry.load(config).drafter("heavy")
    for command, why in (("/nowhere/pilotfish", "cannot be started"), ("/bin/false", "ended with code 1")):
        with pytest.raises(EngineError, match=why):
            HostedDrafter(drafter, config, command=(command,)).load(local_host(tmp_path), fake_pin(), OPTIONS)


PARENT = """
import sys, threading, time
from pathlib import Path
from pilotfish.daemon.config.types import Config, Drafters, Plugins
from pilotfish.daemon.drafters.hosted_drafter import HostedDrafter
from pilotfish.daemon.processes.own_folder import OwnFolder
from pilotfish.daemon.registry.registry import Registry
from pilotfish.hooks.types import EngineOptions
from pilotfish.lab.fakes import fake_pin
from tests.fakes.far import local_host
config = Config(plugins=Plugins((Path(sys.argv[1]),)), drafters=Drafters(("heavy",), {"heavy": {}}))
drafter = HostedDrafter(Registry.load(config).drafter("heavy"), config)
load = threading.Thread(target=drafter.load, args=(local_host(Path(sys.argv[1])), fake_pin(), EngineOptions(n_ctx=64)))
load.start()
load.join()  # the thread that started the child is gone; the child is not
session = drafter.open(fake_pin(), [30])
print(drafter.status().split()[-1], flush=True)
session.propose(1)
time.sleep(600)
"""


def test_a_kill_leaves_a_folder_that_the_next_one_removes(config, tmp_path, monkeypatch):
    temporary = tmp_path / "t"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr(tempfile, "tempdir", None)
    words = [sys.executable, "-c", PARENT, str(config.plugins.folders[0])]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as parent:
        parent.stdout.readline()
        os.kill(parent.pid, signal.SIGKILL)
    (left,) = temporary.iterdir()
    folder = OwnFolder()
    assert list(temporary.iterdir()) == [folder.path]
    assert folder.path != left
    folder.remove()
    assert list(temporary.iterdir()) == []


def test_a_process_that_hangs_does_not_outlive_this_one_even_if_that_is_killed(config):
    words = [sys.executable, "-c", PARENT, str(config.plugins.folders[0])]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as parent:
        child = psutil.Process(int(parent.stdout.readline()))
        time.sleep(0.3)  # until it hangs
        assert child.is_running()
        os.kill(parent.pid, signal.SIGKILL)
    wait_until(lambda: is_gone(child), "the child lives on")


class TestConformance(DrafterConformance):
    @pytest.fixture
    def drafter(self, shared: HostedDrafter) -> HostedDrafter:
        return shared


# Says a lot before it says that it listens, and ends when it is let go.
TALKATIVE = """
import sys
sys.stdout.write('{"a":' * 100_000 + chr(10))
sys.stdout.write("x" * 5_000_000)
sys.stdout.buffer.write(bytes(range(256)))
print()
print('{"url": "here"}', flush=True)
print("its last words", flush=True)
sys.stdin.read()
"""


def test_whatever_a_child_prints_it_is_heard_to_the_end() -> None:
    process = DraftHostProcess([sys.executable, "-c", TALKATIVE], Config())
    try:
        process.wait_until_it_listens(60)
    finally:
        process.stop()
    words = process.child.last_words()
    assert words.endswith("its last words")
    assert "url" not in words, "what it tells us is no complaint"
    assert len(words) < 10_000
