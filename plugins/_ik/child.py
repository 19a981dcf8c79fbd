"""Running what may end its process in a process of its own."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from typing import Any

SECONDS = 60.0  # a bound on failure: on an idle machine the library takes 0.2, and a model 0.4 for each GB

# the file's or the build's own doing; any other signal was sent by somebody else, as for want of memory
CRASHES = frozenset(
    {signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGSEGV, signal.SIGSYS, signal.SIGTRAP}
)


class ChildFailed(Exception):
    """It gave no answer. The message is what it said last, with the signal that ended it, if one did.

    `crash` names that signal where the child would run into it again.
    """

    def __init__(self, words: str, ended_by: signal.Signals | None = None) -> None:
        how = f"its process ended with {ended_by.name}" if ended_by else ""
        super().__init__(": ".join(filter(None, (how, words))) or "it gave no reason")
        self.crash = ended_by.name if ended_by in CRASHES else ""


def ask(module: str, *arguments: str) -> dict[str, Any]:
    """The JSON object that `python -m module` prints. Raises ChildFailed."""
    command = [sys.executable, "-P", "-m", module, *arguments]
    environment = {**os.environ, "PATH": os.devnull}  # or the library asks a debugger where it crashed
    try:
        done = subprocess.run(command, capture_output=True, timeout=SECONDS, check=False, env=environment)
        if done.returncode == 0:
            answer: dict[str, Any] = json.loads(done.stdout)
            return answer
    except subprocess.TimeoutExpired as error:
        raise ChildFailed(f"it took more than {SECONDS:.0f} seconds") from error
    except ValueError as error:
        raise ChildFailed("its process ended without an answer") from error
    except OSError as error:
        raise ChildFailed(str(error)) from error
    words = _last_words(done.stderr.decode("utf-8", "replace"))
    raise ChildFailed(words, signal.Signals(-done.returncode) if done.returncode < 0 else None)


def answer(found: Any) -> int:
    """Print `found` for `ask`; the exit status."""
    sys.stdout.write(json.dumps(found))
    return 0


def leave_no_core() -> None:
    """For the child, before it touches the library: a crash that is expected should fill nobody's disk."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _last_words(stderr: str) -> str:
    """The failed assertion where there is one, before its backtrace; otherwise the last line."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    return next((line for line in lines if "ASSERT" in line), lines[-1] if lines else "")
