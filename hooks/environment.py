"""Environment variables, read as Ollama reads them."""

from __future__ import annotations

import os
from collections.abc import Mapping

OFF = ("off", "0", "no", "false")  # what switches something off; the shim's script knows the same words

_QUOTES = "\"'"


def variable(name: str, environ: Mapping[str, str] | None = None) -> str:
    """The value of `name` without the space and the quotes around it; empty when it is not set.

    An env file of docker compose, or an `Environment=` line of systemd, leaves quotes in the value.
    """
    found = os.environ if environ is None else environ
    return found.get(name, "").strip().strip(_QUOTES).strip()


def switched_off(name: str, environ: Mapping[str, str] | None = None) -> bool:
    """Whether the value of `name` is one of `OFF`, in any case."""
    return variable(name, environ).lower() in OFF
