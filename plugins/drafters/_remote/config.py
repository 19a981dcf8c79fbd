"""`[drafters.remote]`"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pilotfish.hooks.errors import ConfigError
from pilotfish.plugins._options import DrafterTable
from pilotfish.plugins.drafters._remote.address import PILOTFISH_PORT, Address, parse_address, read_token
from pilotfish.plugins.drafters._remote.http import ServerAccess

DIALECTS = ("pilotfish", "completion", "chat")
_KEYS = (
    "url", "dialect", "model", "token_file", "cafile",
    "connect_timeout_s", "timeout_s", "load_timeout_s", "max_bytes",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class RemoteConfig:
    """Which server, how it is spoken to, and how long it may take. Times are seconds."""

    address: Address = field(default=Address(""))
    dialect: str = "pilotfish"
    model: str = ""  # the server's name for it; empty: the only one, or the first, that it has
    token_file: str = ""
    cafile: str = ""  # what signed the server's certificate, where the system does not know it
    connect_timeout: float = 2.0
    timeout: float = 5.0  # for one proposal, from the first byte sent to the last one read
    load_timeout: float = 300.0  # for a load on the other side
    max_bytes: int = 3000  # a chat server is asked nothing about a text longer than this

    @classmethod
    def parse(cls, table: Mapping[str, Any] | None) -> RemoteConfig:
        """Raises ConfigError, whose message starts with the key's path."""
        table, default = table or {}, cls()
        options = DrafterTable("remote", table, _KEYS)
        dialect = _text(table, "dialect", default.dialect)
        if dialect not in DIALECTS:
            choices = ", ".join(f'"{name}"' for name in DIALECTS)
            raise ConfigError(f"drafters.remote.dialect: expected one of {choices}, got {dialect!r}")
        url = _text(table, "url", "")
        if not url:
            raise ConfigError(
                "drafters.remote.url: missing; write where the drafter is, such as http://192.168.1.20:11436"
            )
        return cls(
            address=parse_address(url, default_port=PILOTFISH_PORT if dialect == "pilotfish" else None),
            dialect=dialect,
            model=_text(table, "model", ""),
            token_file=_text(table, "token_file", ""),
            cafile=_text(table, "cafile", ""),
            connect_timeout=options.number("connect_timeout_s", default.connect_timeout, 0.01, 60),
            timeout=options.number("timeout_s", default.timeout, 0.01, 600),
            load_timeout=options.number("load_timeout_s", default.load_timeout, 0.1, 3600),
            max_bytes=options.integer("max_bytes", default.max_bytes, 1, 1 << 20),
        )

    def access(self) -> ServerAccess:
        """How to connect; the secret is read now. Raises ConfigError."""
        token = read_token(self.token_file, environment=self.dialect == "pilotfish")
        return ServerAccess(self.address, token, self.cafile, self.connect_timeout)


def _text(table: Mapping[str, Any], key: str, default: str) -> str:
    value = table.get(key, default)
    if not isinstance(value, str):
        raise ConfigError(f"drafters.remote.{key}: expected text, got {value!r}")
    return value
