"""llama.cpp's RPC protocol, as far as looking needs it: ggml-rpc.cpp of llama.cpp, commands 11, 14 and 15.

A request is a command byte, its payload's size in 8 bytes (little-endian) and the payload; an answer the size and the
payload. An answer's size is compared with what is expected before any of it is read.
"""

from __future__ import annotations

import importlib.metadata
import struct
from dataclasses import dataclass
from typing import Protocol

PACKAGE = "llama-cpp-python"
SPOKEN_BY = {"0.3.36": "7.0.0"}  # ggml-rpc.h of the llama.cpp in each release; libraries have no call that tells
GREETS_AS = "7.0.0"  # the version whose greeting is used here

_DEVICE_MEMORY, _HELLO, _DEVICE_COUNT = 11, 14, 15
_CAPABILITIES = bytes(24)  # of the transport: none but TCP
_OLD_GREETING = b""  # before the greeting told capabilities
_LONGEST_GREETING = 256  # bytes; that of another version may be longer than ours
_MOST_DEVICES = 64
_MOST_MEMORY = 1 << 56  # bytes


class NotSpoken(Exception):
    """The other side's bytes are no answer of an RPC server."""


class Conversing(Protocol):
    """A connection with a deadline. Both raise OSError (TimeoutError when it is over)."""

    def send(self, data: bytes) -> None: ...

    def receive(self, size: int) -> bytes:
        """Exactly `size` bytes. Raises ConnectionError if the other side closed before."""
        ...


@dataclass(frozen=True, slots=True)
class DeviceSeen:
    """A device of a far end: bytes of memory, and its name and description where it tells them."""

    free: int
    total: int
    name: str = ""
    description: str = ""


def spoken_here() -> str:
    """The version that this machine's llama-cpp-python speaks ("7.0.0"); empty where that is not known."""
    try:
        release = importlib.metadata.version(PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        return ""
    return SPOKEN_BY.get(release.partition("+")[0], "")


def understands(near: str, far: str) -> bool:
    """Whether libllama goes on with a far end of that version: it must have its major one, and no newer minor one."""
    (near_major, near_minor), (far_major, far_minor) = _leading(near), _leading(far)
    return near_major == far_major and far_minor <= near_minor


def is_older(one: str, other: str) -> bool:
    """Whether `one` is the older version."""
    return _leading(one) < _leading(other)


def greet(line: Conversing) -> str:
    """Greet as a near end does; the version of the far end. Raises NotSpoken, OSError."""
    return _greet(line, _CAPABILITIES)


def greet_as_before(line: Conversing) -> str:
    """Greet as near ends did before version 7; servers close at a greeting that is not of their time."""
    return _greet(line, _OLD_GREETING)


def ask_devices(line: Conversing) -> tuple[DeviceSeen, ...]:
    """The devices and their memory, after a greeting. Raises NotSpoken, OSError."""
    (count,) = struct.unpack("<I", _ask(line, _DEVICE_COUNT, b"", 4))
    if count > _MOST_DEVICES:
        raise NotSpoken(f"it claims to have {count} devices")
    return tuple(_memory(line, device) for device in range(count))


def _greet(line: Conversing, greeting: bytes) -> str:
    _request(line, _HELLO, greeting)
    size = _size(line)
    if not 3 <= size <= _LONGEST_GREETING:
        raise NotSpoken(f"it answers the greeting with {size} bytes")
    return ".".join(map(str, line.receive(size)[:3]))


def _memory(line: Conversing, device: int) -> DeviceSeen:
    free, total = struct.unpack("<QQ", _ask(line, _DEVICE_MEMORY, struct.pack("<I", device), 16))
    if max(free, total) > _MOST_MEMORY:
        raise NotSpoken(f"it claims that device {device} has {total} bytes")
    return DeviceSeen(free, total)


def _ask(line: Conversing, command: int, payload: bytes, expected: int) -> bytes:
    _request(line, command, payload)
    if (size := _size(line)) != expected:
        raise NotSpoken(f"it answers command {command} with {size} bytes instead of {expected}")
    return line.receive(size)


def _request(line: Conversing, command: int, payload: bytes) -> None:
    line.send(struct.pack("<BQ", command, len(payload)) + payload)


def _size(line: Conversing) -> int:
    size: int = struct.unpack("<Q", line.receive(8))[0]
    return size


def _leading(version: str) -> tuple[int, int]:
    major, minor, *_ = (int(part) for part in version.split("."))
    return major, minor
