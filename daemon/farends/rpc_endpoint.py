"""How a far end is written: HOST or HOST:PORT, as llama.cpp's own parser takes it."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass

DEFAULT_PORT = 50052  # of llama.cpp's rpc-server
MOST = 16  # GGML_RPC_MAX_SERVERS
_LARGEST_PORT = 65535
_LABEL = r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?"
_NAME = re.compile(rf"{_LABEL}(\.{_LABEL})*\.?")


@dataclass(frozen=True, slots=True)
class RpcEndpoint:
    """A name or an IPv4 address, and a port. Its text is what ggml is told."""

    host: str
    port: int = DEFAULT_PORT

    @classmethod
    def parse(cls, text: str) -> RpcEndpoint:
        """Of "HOST" or "HOST:PORT". Raises ValueError, naming the text and what is wrong with it."""
        host, colon, port = text.strip().lower().partition(":")
        if ":" in port or host.startswith("["):
            raise ValueError(
                f'"{text}" is an IPv6 address or a URL: llama.cpp takes HOST or HOST:PORT with a name or an IPv4 '
                "address only, since it cuts at the first colon"
            )
        if not _is_host(host):
            raise ValueError(
                f'"{text}" names no machine: write a name or an IPv4 address, as in "10.0.0.2:{DEFAULT_PORT}"'
            )
        return cls(host, _port(text, port) if colon else DEFAULT_PORT)

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def means(self) -> tuple[str, int]:
        """The same for two ways to write one far end, as far as that can be told without asking for a name."""
        host = self.host.rstrip(".")
        return ("127.0.0.1" if host == "localhost" else host, self.port)

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can be meant."""
        return self.host == "localhost" or (_is_numeric(self.host) and ipaddress.IPv4Address(self.host).is_loopback)


def rpc_endpoints(texts: Sequence[str]) -> tuple[RpcEndpoint, ...]:
    """All far ends of a setting, in their order. Raises ValueError for one that is none, one named twice, too many."""
    found = [RpcEndpoint.parse(text) for text in texts]
    named: dict[tuple[str, int], str] = {}
    for text, address in zip(texts, found, strict=True):
        if address.means in named:
            raise ValueError(twice(text, named[address.means]))
        named[address.means] = text
    if len(found) > MOST:
        raise ValueError(f"names {len(found)} far ends: llama.cpp takes at most {MOST}")
    return tuple(found)


def twice(one: str, other: str) -> str:
    """What is wrong with two entries for the same far end."""
    return f'"{one}" is the same far end as "{other}", and one serves one connection at a time; keep one of the two'


def _is_numeric(host: str) -> bool:
    return not host.strip("0123456789.")


def _is_host(host: str) -> bool:
    if not host or not _is_numeric(host):
        return bool(_NAME.fullmatch(host))
    try:
        ipaddress.IPv4Address(host)
    except ValueError:
        return False
    return True


def _port(text: str, port: str) -> int:
    if not (port.isascii() and port.isdecimal() and 0 < int(port[:6]) <= _LARGEST_PORT and len(port) <= 5):
        raise ValueError(f'"{text}" has no port between 1 and {_LARGEST_PORT} after its colon')
    return int(port)
