"""Where a remote drafter is: an address parsed once, and the secret that opens it."""

from __future__ import annotations

import ipaddress
import os
import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from pilotfish.hooks.errors import ConfigError

PILOTFISH_PORT = 11436  # where `pilotfish draft-host` listens
TOKEN_VARIABLE = "PILOTFISH_DRAFT_TOKEN"
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Address:
    """A server: `host` and `port`, or a Unix `socket`. `base` is what every path begins with, without a last slash."""

    url: str  # as the user wrote it
    host: str = "localhost"
    port: int = 0
    socket: str = ""
    tls: bool = False
    base: str = ""

    @property
    def is_local(self) -> bool:
        """Whether nothing that is sent there leaves this machine."""
        return bool(self.socket) or is_loopback(self.host)


def parse_address(url: str, *, default_port: int | None = None, where: str = "drafters.remote.url") -> Address:
    """`http://host:port`, `https://host:port/base` or `unix:/path/to.sock`. Raises ConfigError naming `where`.

    Without a port it is `default_port`, else the scheme's own.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ConfigError(f"{where}: {url!r} is no address ({error})") from error
    if parts.scheme == "unix":
        return _unix(url, parts, where)
    if parts.scheme not in _PORTS or not parts.hostname:
        raise ConfigError(f"{where}: {url!r} is no address; write http://host:port, https://host:port or unix:/path")
    if parts.username or parts.password:
        raise ConfigError(f"{where}: has no place for a password; put the secret into a file and name it as token_file")
    if parts.query or parts.fragment:
        raise ConfigError(f"{where}: {url!r} has a query or fragment; leave it out")
    port = port or default_port or _PORTS[parts.scheme]
    return Address(url, parts.hostname, port, "", parts.scheme == "https", parts.path.rstrip("/"))


def is_loopback(host: str) -> bool:
    """Whether a host name or address can only mean this machine."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def read_token(token_file: str, *, environment: bool) -> str:
    """The shared secret: the file's content, else with `environment` `$PILOTFISH_DRAFT_TOKEN`, else empty.

    The variable is a draft host's and nobody else's. Raises ConfigError.
    """
    where, token = f"${TOKEN_VARIABLE}", os.environ.get(TOKEN_VARIABLE, "").strip() if environment else ""
    if token_file:
        where = f"drafters.remote.token_file: {token_file}"
        try:
            token = Path(token_file).expanduser().read_text("ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{where} cannot be read: {error}") from error
    if (token or token_file) and not re.fullmatch(r"[!-~]+", token):
        raise ConfigError(f"{where}: needs one word of plain letters, digits and signs; try: openssl rand -hex 32")
    return token


def _unix(url: str, parts: SplitResult, where: str) -> Address:
    path = parts.path or parts.netloc
    if parts.netloc or not path.startswith("/"):
        raise ConfigError(f"{where}: {url!r} is no address; write unix:/absolute/path.sock")
    return Address(url, socket=path)
