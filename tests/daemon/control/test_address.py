"""Owning the socket: who is respected, who is replaced, and who may connect."""

from __future__ import annotations

import os
import socket as sockets
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from pilotfish.daemon.config.types import Config, Daemon
from pilotfish.daemon.control.address import MAX_PATH, claimed, is_ours, socket_path
from pilotfish.hooks.errors import ConfigError


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def knock(path: Path) -> bool:
    with sockets.socket(sockets.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == 0


class TestWhereItLies:
    def test_the_environment_comes_before_the_config(self, socket, monkeypatch):
        named = Config(daemon=Daemon(Path("/somewhere/else.sock")))
        assert socket_path(named) == socket
        monkeypatch.delenv("PILOTFISH_SOCKET")
        assert socket_path(named) == Path("/somewhere/else.sock")

    def test_by_default_in_the_runtime_folder(self, home, monkeypatch):
        runtime = home / "runtime"
        runtime.mkdir(mode=0o700)
        monkeypatch.delenv("PILOTFISH_SOCKET")
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
        path = socket_path(Config())
        assert path.name == "pilotfish.sock"
        if sys.platform == "linux":
            assert path.parent == runtime / "pilotfish"

    def test_a_path_that_is_too_long_is_refused_with_the_remedy(self, home, monkeypatch):
        fits = str(home) + "/" + "s" * (MAX_PATH - len(str(home)) - 1)
        monkeypatch.setenv("PILOTFISH_SOCKET", fits)
        with claimed(socket_path(Config())) as listening:
            assert listening is not None
        monkeypatch.setenv("PILOTFISH_SOCKET", fits + "s")
        with pytest.raises(ConfigError, match=r"too long for a Unix socket.*PILOTFISH_SOCKET"):
            socket_path(Config())


class TestWhoMayConnect:
    def test_the_socket_is_0600_in_a_folder_of_0700(self, socket):
        with claimed(socket):
            assert (mode(socket), mode(socket.parent)) == (0o600, 0o700)
            assert is_ours(socket)

    def test_a_folder_that_others_may_write_to_is_refused(self, socket):
        socket.parent.mkdir()
        socket.parent.chmod(0o777)
        with pytest.raises(ConfigError, match=f"chmod go-w '{socket.parent}'"), claimed(socket):
            pass
        assert not socket.exists()

    def test_a_client_talks_to_nothing_but_a_socket_of_its_own_user(self, socket, monkeypatch):
        assert not is_ours(socket)
        socket.parent.mkdir()
        socket.touch()
        assert not is_ours(socket)
        socket.unlink()
        with claimed(socket):
            if os.geteuid() == 0:
                os.chown(socket, 4321, -1)
            else:
                monkeypatch.setattr(os, "geteuid", lambda: socket.stat().st_uid + 1)
            assert not is_ours(socket)


class TestWhoIsRespected:
    def test_a_dead_daemons_socket_is_replaced(self, socket):
        socket.parent.mkdir()
        with sockets.socket(sockets.AF_UNIX) as dead:
            dead.bind(str(socket))
        assert not knock(socket)
        with claimed(socket) as listening:
            assert listening is not None
            assert knock(socket)
        assert not socket.exists()

    def test_one_that_answers_is_respected(self, socket):
        socket.parent.mkdir()
        with sockets.socket(sockets.AF_UNIX) as other:
            other.bind(str(socket))
            other.listen()
            with claimed(socket) as listening:
                assert listening is None
            assert knock(socket)

    def test_the_second_of_two_daemons_stands_back(self, socket):
        with claimed(socket) as first, claimed(socket) as second:
            assert first is not None
            assert second is None
            assert knock(socket)

    @pytest.mark.parametrize("name", ["p.sock.lock", "pilotfish.pid", "p.pid"])
    def test_a_pid_in_a_file_means_nothing(self, socket, name):
        socket.parent.mkdir()
        (socket.parent / name).write_text("1")  # a process that certainly runs
        with claimed(socket) as listening:
            assert listening is not None

    def test_a_killed_daemon_is_forgotten_at_once(self, socket):
        script = f"""
import time
from pathlib import Path
from pilotfish.daemon.control.address import claimed
with claimed(Path({str(socket)!r})) as listening:
    print(listening is not None, flush=True)
    time.sleep(60)
"""
        with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as daemon:
            assert daemon.stdout is not None
            assert daemon.stdout.readline() == b"True\n"
            with claimed(socket) as listening:
                assert listening is None
            daemon.kill()
            daemon.wait()
        assert socket.exists()
        with claimed(socket) as listening:
            assert listening is not None

    def test_something_that_is_no_socket_is_left_alone(self, socket):
        socket.parent.mkdir()
        socket.write_text("a diary")
        with pytest.raises(ConfigError, match="no socket; move it away"), claimed(socket):
            pass
        assert socket.read_text() == "a diary"

    def test_a_successors_socket_is_not_removed(self, socket):
        with claimed(socket):
            socket.unlink()
            socket.write_text("somebody else's")
        assert socket.exists()
