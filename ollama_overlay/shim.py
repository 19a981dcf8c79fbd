"""The shim's decision as a process: `python -m pilotfish.ollama_overlay.shim <llama-server's arguments>`.

The exit code tells the script (see `shim_script`) which program to become. One line on stderr says why, and so does
an entry in the state folder, for `pilotfish status`.
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
    decision = _decision(sys.argv[1:] if argv is None else argv)
    _say(decision)
    if not decision.runner:
        if decision.certify:
            certify_beside(os.getppid(), decision.certify, ollama_libraries=decision.ollama_libraries)
        return DECIDED_STOCK
    return RUNNER_ON_OLLAMA if decision.ollama_libraries else RUNNER


def _decision(argv: Sequence[str]) -> Decision:
    try:
        return decide(argv, state_dir())
    except ConfigError as error:  # no home folder: there is nothing to remember in
        return Decision(False, model_path(argv).name, str(error))


def _say(decision: Decision) -> None:
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
