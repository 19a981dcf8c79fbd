"""GPT-2's way to write bytes as letters, in which byte-level tokenizers spell their pieces."""

from __future__ import annotations


def _letters() -> dict[str, int]:
    """Printable bytes stand for themselves; the others follow in order from U+0100 on."""
    shown = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    hidden = [byte for byte in range(256) if byte not in shown]
    return {chr(byte): byte for byte in shown} | {chr(256 + i): byte for i, byte in enumerate(hidden)}


BYTE_OF = _letters()
