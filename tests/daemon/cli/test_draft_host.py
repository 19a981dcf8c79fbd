"""`pilotfish draft-host` as a process: what it says, whom it serves, how it ends."""

from __future__ import annotations

import signal
import socket
from pathlib import Path

import pytest

from pilotfish.daemon.cli import cli
from pilotfish.daemon.processes.ports import free_port
from pilotfish.hooks.errors import PilotfishError, WorldError
from pilotfish.hooks.types import EngineOptions
from pilotfish.lab.fakes import fake_pin
from pilotfish.plugins.drafters.remote import RemoteDrafter
from tests.fakes.certificates import self_signed
from tests.fakes.far import draft_host, local_host

SECRET = "a-secret-of-sixteen-letters"


def refused(*arguments: str) -> str:
    """What a call says that is refused."""
    with pytest.raises(PilotfishError) as caught:
        cli.main(["draft-host", *arguments], standalone_mode=False)
    return str(caught.value)


def load(url: str, folder: Path, **table: object) -> RemoteDrafter:
    drafter = RemoteDrafter({"url": url, **table})
    drafter.load(local_host(folder), fake_pin(), EngineOptions(n_ctx=64))
    return drafter


def test_it_says_where_it_is_serves_and_ends_cleanly(tmp_path):
    port = free_port()
    with draft_host(tmp_path, "suffix", "--host", f"127.0.0.1:{port}") as host:
        url = f"http://127.0.0.1:{port}"
        expected = {
            "drafter": "suffix",
            "url": url,
            "sessions": 64,
            "pid": host.process.pid,
            "token": False,
            "tls": False,
        }
        assert host.said == expected
        drafter = load(url, tmp_path)
        session = drafter.open(fake_pin(), [5, 6, 7, 8, 5, 6, 7])
        assert session.propose(1).tokens == (8,)
        session.close()
        drafter.unload()
        host.process.send_signal(signal.SIGINT)
        assert host.process.wait(20) == 0


def test_a_unix_socket_is_for_this_user_only_and_removed_at_the_end(tmp_path):
    path = tmp_path / "s"
    with draft_host(tmp_path, "counting", "--socket", str(path)) as host:
        assert host.url == f"unix:{path}"
        assert path.stat().st_mode & 0o777 == 0o600
        drafter = load(host.url, tmp_path)
        assert "another process listens on" in refused("suffix", "--socket", str(path))
        drafter.open(fake_pin(), [5]).propose(1)
        assert host.stop() == 0  # a session is open still
        drafter.unload()
    assert not path.exists()


def test_tls_and_a_secret(tmp_path):
    (cert, key), secret = self_signed(tmp_path), tmp_path / "secret"
    secret.write_text(SECRET)
    where = ("--host", f"127.0.0.1:{free_port()}", "--cert", str(cert), "--key", str(key), "--token-file", str(secret))
    with draft_host(tmp_path, "counting", *where) as host:
        assert host.url.startswith("https://")
        assert (host.said["tls"], host.said["token"]) == (True, True)
        drafter = load(host.url, tmp_path, token_file=str(secret), cafile=str(cert))
        assert drafter.open(fake_pin(), [5]).propose(2).tokens == (6, 7)
        drafter.unload()
        with pytest.raises(WorldError, match=r"no trusted TLS connection.*cafile"):
            load(host.url, tmp_path, token_file=str(secret))
        with pytest.raises(WorldError, match="401"):
            load(host.url, tmp_path, cafile=str(cert))


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("suffix", "--host", "0.0.0.0:0"), "a shared secret is needed"),
        (("suffix", "--host", "rtx.example:99999"), "has no port from 0 to 65535"),
        (("suffix", "--host", "127.0.0.1:1", "--token-file", "/nowhere"), "--token-file: /nowhere cannot be read"),
        (("suffix", "--host", "127.0.0.1:0", "--key", "/nowhere"), "--key: needs --cert"),
        (("suffix", "--host", "127.0.0.1:0", "--cert", "/nowhere"), "--cert: /nowhere"),
        (("suffix", "--socket", "/tmp/s", "--host", "127.0.0.1"), "--socket: goes without --host"),
        (("sufix", "--host", "127.0.0.1:0"), "did you mean 'suffix'"),
    ],
)
def test_what_cannot_be_served_is_refused_with_the_remedy(arguments, why):
    assert why in refused(*arguments)


def test_a_port_in_use_is_named():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert "choose another address" in refused("suffix", "--host", f"127.0.0.1:{taken.getsockname()[1]}")


def test_a_short_secret_is_refused(tmp_path):
    (tmp_path / "secret").write_text("short")
    assert "at least 16 characters" in refused("suffix", "--token-file", str(tmp_path / "secret"))


def test_a_drafter_that_drafts_elsewhere_is_not_served(tmp_path):
    config = tmp_path / "pilotfish.toml"
    config.write_text('[drafters.remote]\nurl = "http://127.0.0.1:1"\n')
    assert "drafts on another machine already" in refused("remote", "--config", str(config))
