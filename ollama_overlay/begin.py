"""What the script becomes: the decision, and then at once the runner or the stock server, in the same process.

The decision imports a part of what a runner does, so it is not worth a process of its own: that was a tenth of a
second of every load. What cannot be undone any more, a Python that does not start or an incomplete package, the script
itself looks after (see `shim_script`).
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Sequence

from pilotfish.ollama_overlay import start
from pilotfish.ollama_overlay.certify_beside import certify_beside, runner_environment
from pilotfish.ollama_overlay.decision import Decision
from pilotfish.ollama_overlay.shim import LIMIT_SECONDS, decision_for, say
from pilotfish.ollama_overlay.stock import become_stock

AFTER = "pilotfish.ollama_overlay.start"  # what follows a decision in another environment


def main(argv: Sequence[str] | None = None) -> int:
    """Run until told to stop; returns the exit code, if this process is not replaced. The script started it."""
    arguments = sys.argv[1:] if argv is None else argv
    try:
        decision = _within(LIMIT_SECONDS, arguments)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        become_stock(f"deciding failed ({type(error).__name__}: {error})", arguments)
    if not decision.runner:
        if decision.certify:
            certify_beside(os.getpid(), decision.certify, ollama_libraries=decision.ollama_libraries)
        become_stock("", arguments)
    if decision.ollama_libraries:
        _start_on_ollamas_libraries(arguments)
    return start.main(arguments)


def _within(seconds: float, arguments: Sequence[str]) -> Decision:
    """The decision, told; raises TimeoutError where that takes too long, as with a folder on a dead network drive.

    Nothing more is written then: the state folder may be on the same drive.
    """
    found: list[Decision | BaseException] = []

    def decide_and_say() -> None:
        try:
            decision = decision_for(arguments)
            say(decision)
            found.append(decision)
        except BaseException as error:
            found.append(error)

    deciding = threading.Thread(target=decide_and_say, daemon=True)
    deciding.start()
    deciding.join(seconds)
    if not found:
        raise TimeoutError(f"it took more than {seconds:g} s")
    if isinstance(found[0], BaseException):
        raise found[0]
    return found[0]


def _start_on_ollamas_libraries(arguments: Sequence[str]) -> None:
    """Begin anew: where libraries are looked for is settled when a process begins. Stock where that fails."""
    environment = runner_environment(ollama_libraries=True)
    try:
        os.execve(sys.executable, [sys.executable, "-P", "-m", AFTER, *arguments], environment)
    except OSError as error:
        become_stock(f"the runner cannot be started ({error})", arguments)


if __name__ == "__main__":
    sys.exit(main())
