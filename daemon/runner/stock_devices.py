"""Which accelerators a stock llama-server would put layers on, as it says itself."""

from __future__ import annotations

import re
import subprocess

from pilotfish.daemon.runner.floor import StockServer

LIST = "--list-devices"
SECONDS = 20.0  # a driver that was not used since the machine started takes some of them
_HEADING = "Available devices:"
_DEVICE = re.compile(r"^ +([^\s:()]+): ")


def stock_devices(stock: StockServer | None) -> tuple[str, ...]:
    """ggml's names of them; empty for a build for processors only, without a server, and where it does not tell."""
    if stock is None:
        return ()
    try:
        done = subprocess.run(
            [stock.program, LIST],
            env=dict(stock.environment),
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=True,
        )
    except (OSError, ValueError, subprocess.SubprocessError):
        return ()
    _, _, listed = done.stdout.partition(_HEADING)
    return tuple(found[1] for line in listed.splitlines() if (found := _DEVICE.match(line)))
