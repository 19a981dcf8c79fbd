"""Which program asks, by what it says of itself: a name for the account, and nothing to rely on."""

from __future__ import annotations

import re
from collections.abc import Mapping

HEADER = "X-Pilotfish-Client"  # from a server of ours that asks on behalf of a client
UNKNOWN = "unknown"
BROWSER = "a browser"
LONGEST = 40  # characters

_VERSION = re.compile(r"[/ ]v?\d.*$")
_UNPRINTABLE = re.compile(r"[^\x20-\x7e]")


def client_program(headers: Mapping[str, str]) -> str:
    """The program's name without its version: `ollama-python`, `curl`, `a browser`; `unknown` where it says nothing."""
    told = headers.get(HEADER) or headers.get("User-Agent") or ""
    name = _UNPRINTABLE.sub("", told).split(" (")[0].strip()
    if name.startswith("Mozilla/"):
        return BROWSER
    return _VERSION.sub("", name)[:LONGEST].strip() or UNKNOWN
