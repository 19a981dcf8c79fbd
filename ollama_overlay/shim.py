"""The shim's decision, and how it is told: on stderr, and by an entry in the state folder, for `pilotfish status`.

Scripts of older overlays run it as a process, `python -m pilotfish.ollama_overlay.shim` with llama-server's arguments,
whose exit code says what to become.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
from collections.abc import Sequence

from pilotfish.daemon.config.paths import state_dir
from pilotfish.daemon.control import decision_log
from pilotfish.daemon.runner.launch_arguments import model_path
from pilotfish.hooks.errors import ConfigError
from pilotfish.ollama_overlay.certify_beside import certify_beside
from pilotfish.ollama_overlay.decision import Decision, decide
from pilotfish.ollama_overlay.shim_script import DECIDED_STOCK, RUNNER, RUNNER_ON_OLLAMA

LIMIT_SECONDS = 5  # a folder on a dead network drive: the alarm ends the process, and the script goes on with stock


def main(argv: Sequence[str] | None = None) -> int:
    """Decide, say it, and return the exit code."""
    signal.alarm(LIMIT_SECONDS)
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(name)s: %(message)s")
    decision = decision_for(sys.argv[1:] if argv is None else argv)
    say(decision)
    if not decision.runner:
        if decision.certify:
            certify_beside(os.getppid(), decision.certify, ollama_libraries=decision.ollama_libraries)
        return DECIDED_STOCK
    return RUNNER_ON_OLLAMA if decision.ollama_libraries else RUNNER


def decision_for(argv: Sequence[str]) -> Decision:
    """The decision for a launch, by what this user's folders hold. Raises nothing."""
    try:
        return decide(argv, state_dir())
    except ConfigError as error:  # no home folder: there is nothing to remember in
        return Decision(False, model_path(argv).name, str(error))


def say(decision: Decision) -> None:
    """On stderr and in the state folder; a full disk, or a stderr that is gone, must not cost a load."""
    program = "runner" if decision.runner else "stock llama-server"
    try:
        sys.stderr.write(f"pilotfish: {program} for {decision.model}: {decision.reason}\n")
        sys.stderr.flush()
    except OSError:
        # The interpreter flushes once more on its way out, and would end with an exit code of its own.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
    with contextlib.suppress(OSError, ConfigError):
        decision_log.record(state_dir(), decision.model, "runner" if decision.runner else "stock", decision.reason)


if __name__ == "__main__":
    sys.exit(main())
