"""What a far end of pilotfish's own says of itself, at the port where it also computes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pilotfish.daemon.farends.far_line import FarLine
from pilotfish.daemon.farends.rpc_protocol import DeviceSeen, NotSpoken

# The name is one that a far end behind a tunnel takes for itself, whatever it is called here.
_REQUEST = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
_READY = re.compile(rb"HTTP/1\.\d 200\b")
_MOST = 1 << 16  # bytes of an answer
_SHOWN = 200  # characters of any text in it
_VERSION = re.compile(r"\d{1,3}\.\d{1,3}\.\d{1,3}")
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d{1,9}) *\r\n", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class OwnHealth:
    """`busy` is who is served, for `busy_s` seconds; `fingerprint` that of the libraries, as of an engine here.

    The process that computes there has not answered for `silent_s` seconds, 0 where it does; it is not `ready` while
    that is started again. `instance` is another for each host that was started.
    """

    protocol: str
    fingerprint: str
    processor: str
    threads: int
    devices: tuple[DeviceSeen, ...]
    busy: str
    busy_s: float
    silent_s: float
    ready: bool
    instance: str

    @property
    def pin(self) -> str:
        """What computes there, in one line."""
        cards = [f"{device.name} {device.description}" for device in self.devices if device.name != "CPU"]
        threads = f"{self.threads} thread{'s' if self.threads != 1 else ''}"
        return ", ".join([f"libraries {self.fingerprint[:12]}", self.processor, threads, *cards])


def ask_health(line: FarLine) -> OwnHealth | None:
    """Ask who is there; None where the other side ends the connection without a word, as an rpc-server does.

    That server takes the first byte for a command it does not know, before any other, and serves the next. Raises
    NotSpoken for another answer, OSError.
    """
    answer = _answer(line, _REQUEST)
    if not answer:
        return None
    if not answer.startswith(b"HTTP/1."):
        raise NotSpoken(f"it begins with {answer[:16]!r}")
    head, _, body = answer.partition(b"\r\n\r\n")
    found = _read(body, ready=bool(_READY.match(head)))
    if found is None:
        raise NotSpoken(f"it is another HTTP server ({head.splitlines()[0][:_SHOWN].decode('ascii', 'replace')})")
    return found


def _answer(line: FarLine, request: bytes) -> bytes:
    """All of it, or what came before the other side ended the connection."""
    got = bytearray()
    try:
        line.send(request)
        while not _is_whole(got) and (more := line.receive_some(_MOST + 1 - len(got))):
            got += more
    except ConnectionError:
        pass
    if len(got) > _MOST:
        raise NotSpoken("it answers without an end")
    return bytes(got)


def _is_whole(got: bytearray) -> bool:
    if got and not got.startswith(b"HTTP/1."[: len(got)]):
        return True  # no need to wait for the rest of something else
    head, end, body = bytes(got).partition(b"\r\n\r\n")
    length = _LENGTH.search(head + b"\r\n") if end else None
    return len(got) > _MOST or (length is not None and len(body) >= int(length[1]))


def _read(body: bytes, *, ready: bool) -> OwnHealth | None:
    try:
        said = json.loads(body)
        return _health(said, ready) if "pilotfish" in said else None
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return None


def _health(said: Mapping[str, Any], ready: bool) -> OwnHealth:
    """Raises KeyError, TypeError, ValueError for what is not one."""
    if not _VERSION.fullmatch(protocol := said["protocol"]):
        raise ValueError(protocol)
    return OwnHealth(
        protocol=protocol,
        fingerprint=_text(said["fingerprint"]),
        processor=_text(said["processor"]),
        threads=int(said["threads"]),
        devices=tuple(_device(device) for device in said["devices"]),
        busy=_text(said.get("busy") or ""),
        busy_s=float(said.get("busy_s") or 0.0),
        silent_s=float(said.get("silent_s") or 0.0),
        ready=ready,
        instance=_text(said.get("instance") or ""),
    )


def _device(said: Mapping[str, Any]) -> DeviceSeen:
    return DeviceSeen(int(said["free"]), int(said["total"]), _text(said["name"]), _text(said["description"]))


def _text(value: object) -> str:
    """In one line of bounded length, without what a terminal would obey."""
    return "".join(letter for letter in str(value)[:_SHOWN] if letter.isprintable())
