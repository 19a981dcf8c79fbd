"""`pilotfish rpc-host` as a process: what it says, and how it ends."""

from __future__ import annotations

import signal

import psutil
import pytest

from pilotfish.daemon.cli import cli
from pilotfish.hooks.errors import PilotfishError
from tests.far_ends import far_end, rpc_folder
from tests.waiting import wait_until


def refused(*arguments: str) -> str:
    with pytest.raises(PilotfishError) as caught:
        cli.main(["rpc-host", *arguments], standalone_mode=False)
    return str(caught.value)


def test_it_listens_for_others_only_if_told_that_this_is_known():
    assert "ssh -N -L 50052:127.0.0.1:50052 user@" in refused("--host", "0.0.0.0:50052")


def test_without_libggml_rpc_it_says_how_to_get_it(tmp_path):
    (tmp_path / "libllama.so").touch()
    assert "pilotfish rpc-build" in refused("--host", "127.0.0.1:0", "--libllama", str(tmp_path))


def test_a_cache_that_others_can_write_to_is_refused(tmp_path):
    tmp_path.chmod(0o777)
    assert "chmod 700" in refused("--host", "127.0.0.1:0", "--cache", str(tmp_path))


@pytest.mark.rpc
def test_a_device_that_is_not_there_is_named_with_those_that_are():
    assert "there is no CUDA7; there are: CPU" in refused(
        "--host", "127.0.0.1:0", "--device", "CUDA7", "--libllama", str(rpc_folder())
    )


@pytest.mark.rpc
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_both_processes_end_when_it_is_told_to_even_one_that_is_stopped(tmp_path, number):
    with far_end(tmp_path) as end:
        assert end.said["endpoint"] == end.endpoint
        assert (end.said["protocol"], end.said["threads"]) == ("7.0.0", 1)
        child = end.child
        if number != signal.SIGKILL:
            child.suspend()
        end.process.send_signal(number)
        assert end.process.wait(60) == (0 if number != signal.SIGKILL else -signal.SIGKILL)
        wait_until(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE, "it lives on")
