"""A device that only one process may use has one holder, which is named, and whose lease ends with it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from pilotfish.daemon.drafters.lease import Owner, acquire, holder
from pilotfish.daemon.drafters.local_host import LocalHost
from pilotfish.hooks.errors import DeviceBusy, ModelNotFound, UsageError
from pilotfish.manifests.store import Store
from tests.manifests.builders import smollm2_path as packaged_smollm2

HOLDING = """
import sys, time
from pilotfish.daemon.drafters.lease import Owner, acquire
with acquire("NV", Owner.this_process("a drafter of the other process")):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PILOTFISH_LEASES", str(tmp_path / "leases"))
    return tmp_path / "leases"


@pytest.fixture
def other():
    """Another process that holds `NV`."""
    with subprocess.Popen([sys.executable, "-c", HOLDING], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"held\n"
        yield process
        process.kill()


def test_a_free_device_is_held_until_the_context_ends():
    assert holder("NV") is None
    with acquire("NV") as owner:
        assert holder("NV") == owner
        assert owner.pid == os.getpid()
    assert holder("NV") is None


def test_a_second_process_is_refused_and_told_who_holds_it(other):
    with pytest.raises(DeviceBusy, match=rf"NV is held by process {other.pid} on .*a drafter of the other process"):
        acquire("NV").__enter__()
    assert holder("NV").pid == other.pid


def test_other_devices_are_free_meanwhile(other):
    with acquire("CUDA:0"):
        assert holder("CUDA:0").pid == os.getpid()


def test_a_killed_holders_lease_ends(other):
    other.kill()
    other.wait()
    with acquire("NV") as owner:
        assert owner.pid == os.getpid()


def test_one_who_waits_gets_it_when_it_is_let_go(other):
    threading.Timer(0.2, other.stdin.close).start()
    with acquire("NV", wait=30) as owner:
        assert holder("NV") == owner


def test_waiting_has_an_end(other):
    with pytest.raises(DeviceBusy, match="NV is held by"):
        acquire("NV", wait=0.2).__enter__()


def test_one_process_cannot_hold_it_twice():
    with acquire("NV", Owner.this_process("first")), pytest.raises(DeviceBusy, match="first"):
        acquire("NV").__enter__()


@pytest.mark.parametrize(
    "said",
    [
        b"{",
        b"[" * 4000,
        b"\xff",
        b'{"pid": Infinity, "command": "", "host": "", "since": 0}',
        b'{"pid": 1, "command": "", "host": "", "since": 1e300}',
        b'{"pid": 1, "command": "", "host": "", "since": NaN}',
    ],
)
def test_a_holder_that_has_written_nothing_of_use_is_a_holder(other, folder, said):
    (folder / "NV.lease").write_bytes(said)
    with pytest.raises(DeviceBusy, match="another process"):
        acquire("NV").__enter__()


@pytest.mark.parametrize("device", ["", "../NV", "a/b", "x" * 65, "NV\n"])
def test_a_device_has_a_sensible_name(device):
    with pytest.raises(UsageError, match="is no device's name"):
        acquire(device).__enter__()


def test_a_link_in_the_locks_place_is_not_followed(folder, tmp_path):
    folder.mkdir()
    (tmp_path / "precious").write_text("precious")
    (folder / "NV.lease").symlink_to(tmp_path / "precious")
    with pytest.raises(DeviceBusy, match="cannot be opened"):
        acquire("NV").__enter__()
    assert (tmp_path / "precious").read_text() == "precious"


def test_locks_serve_all_users(folder):
    with acquire("NV"):
        assert folder.stat().st_mode & 0o7777 == 0o1777
        assert (folder / "NV.lease").stat().st_mode & 0o777 == 0o666


def test_a_drafters_host_leases_in_its_own_name(tmp_path):
    host = LocalHost(Store(tmp_path), tmp_path / "state", owner="pilotfish draft-host tinygrad")
    with host.lease("NV"):
        assert holder("NV").command == "pilotfish draft-host tinygrad"


@pytest.mark.parametrize("model", ["nothing:latest", "/nowhere/model.gguf", "model.gguf", "a b"])
def test_a_drafters_host_names_the_model_it_has_not(tmp_path, model):
    host = LocalHost(Store(tmp_path), tmp_path / "state")
    with pytest.raises(ModelNotFound, match=model):
        host.pin(model)


def test_a_drafters_host_pins_files_and_models(tmp_path, smollm2_path):
    store = Store(tmp_path / "models")
    store.add_gguf("smollm2:135m", packaged_smollm2())
    host = LocalHost(store, tmp_path / "state")
    assert host.pin("smollm2:135m").name == "smollm2:135m"
    assert host.pin(str(smollm2_path)).path == smollm2_path
    assert host.pin("smollm2:135m").tokenizer == host.pin(str(smollm2_path)).tokenizer
