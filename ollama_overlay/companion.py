"""The daemon beside an overlaid Ollama: started with it unless one answers, and ended with it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys

from pilotfish.daemon.config.files import load_or_last_good
from pilotfish.hooks.environment import switched_off
from pilotfish.hooks.errors import ConfigError


def start_daemon() -> str:
    """Start a daemon that ends with this process, also when that becomes another program; why there is none, if so.

    Does not wait for it: models find it when it is there.
    """
    from pilotfish.daemon.control.address import socket_path  # aiohttp is not for `overlay status`
    from pilotfish.daemon.control.control_client import ask_status

    if switched_off("PILOTFISH"):
        return ""
    try:
        if asyncio.run(ask_status(socket_path(load_or_last_good()))) is not None:
            return ""
        command = [sys.executable, "-P", "-m", "pilotfish.daemon.cli", "daemon", "--parent", str(os.getpid())]
        subprocess.Popen(command, stdin=subprocess.DEVNULL)
    except (ConfigError, OSError) as error:
        return str(error)
    return ""
