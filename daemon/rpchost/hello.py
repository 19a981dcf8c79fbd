"""The one message of llama.cpp's RPC protocol that is known here: the first, which is the same in all its versions."""

from __future__ import annotations

import asyncio
import struct

HELLO = 14  # the first byte
_CAPABILITIES = 24  # bytes, all zero: plain TCP
_LONGEST = 1 << 10  # bytes of an answer
_MESSAGE = struct.pack("<BQ", HELLO, _CAPABILITIES) + bytes(_CAPABILITIES)


async def protocol_at(port: int) -> str:
    """The version that the server on that port of this machine speaks, such as "7.0.0".

    Raises OSError where none listens, EOFError or ValueError where it is no such server.
    """
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(_MESSAGE)
        (size,) = struct.unpack("<Q", await reader.readexactly(8))
        if not 3 <= size <= _LONGEST:
            raise ValueError(f"an answer of {size} bytes")
        return ".".join(str(number) for number in (await reader.readexactly(size))[:3])
    finally:
        writer.close()
