"""Runs a program that must not outlive the process that started it.

    python -IS tied.py PARENT'S-PID SIGNAL PROGRAM ARGUMENT...

Ollama ends a runner with SIGKILL, which leaves the runner no time to end what it started. On Linux the kernel is asked
to send the program the signal when its parent goes, and this process becomes the program. Elsewhere it stays as a
watchman: its stdin is a pipe from the parent, which ends when the parent does, however that comes about.

Only the standard library is imported, so that it starts in milliseconds.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import NoReturn

PR_SET_PDEATHSIG = 1  # from <linux/prctl.h>
PYTHON_IGNORES = ("SIGPIPE", "SIGXFSZ", "SIGXFZ")  # and what is ignored stays so in the next program
POLL_SECONDS = 0.1


def tied_command(command: Sequence[str], ending: signal.Signals = signal.SIGKILL) -> list[str]:
    """The command line that runs `command` so, for a child whose stdin is a pipe that this process keeps open.

    `ending` is the signal: SIGTERM leaves a program time to end what it started itself.
    """
    return [sys.executable, "-IS", __file__, str(os.getpid()), str(int(ending)), *command]


def main(argv: Sequence[str]) -> int:
    """Run the program in `argv`; the exit code is its own where this process is not replaced."""
    parent, ending, *command = argv
    try:
        if os.uname().sysname == "Linux":
            become(int(parent), int(ending), command)
        return watch(int(ending), command)
    except OSError as error:
        sys.exit(f"{command[0]}: {error.strerror}")


def become(parent: int, ending: int, command: Sequence[str]) -> NoReturn:
    """Replace this process by the program, which gets the signal when the thread that started this process ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, ending)
    if os.getppid() != parent:  # it was gone before the kernel knew
        sys.exit(1)
    for name in PYTHON_IGNORES:
        if number := getattr(signal, name, None):
            signal.signal(number, signal.SIG_DFL)
    os.execv(command[0], list(command))


def watch(ending: int, command: Sequence[str]) -> int:
    """Run the program until it ends, this process is told to, or stdin does, which sends it the signal."""
    program = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    signal.signal(signal.SIGTERM, lambda *_: program.terminate())
    while program.poll() is None:
        readable, *_ = select.select([sys.stdin], [], [], POLL_SECONDS)
        if readable and not os.read(sys.stdin.fileno(), 1):
            program.send_signal(ending)
            return program.wait()
    return program.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
