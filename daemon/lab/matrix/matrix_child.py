"""One row of the matrix in a process of its own: `python -m pilotfish.daemon.lab.matrix.matrix_child JOB`.

A model can end the process that loads it: an assertion in an engine's library is an abort. JOB is JSON; each line of
the answer begins with MARK: `{"stage"}` before each step, then `{"row"}`, or `{"failed"}` with a reason.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import IO

from pilotfish.daemon.lab.matrix.matrix_case import MatrixCase, MatrixSize
from pilotfish.daemon.lab.matrix.matrix_measuring import measured_row
from pilotfish.daemon.processes.parent_death import end_with_stdin
from pilotfish.hooks.errors import PilotfishError

MARK = "matrix: "
CHECK_SECONDS = 20  # what the check at load finds is not to depend on what else runs


def main() -> int:
    """Returns the exit code."""
    end_with_stdin()
    os.environ.setdefault("PILOTFISH_CHECK_SECONDS", str(CHECK_SECONDS))
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print goes elsewhere
    job = json.loads(sys.argv[1])
    case, size = MatrixCase(**job["case"]), MatrixSize.from_json(job["size"])

    def stage(what: str) -> None:
        _say(answers, {"stage": what})

    try:
        row = measured_row(case, size, Path(job["path"]), stage)
    except PilotfishError as error:
        _say(answers, {"failed": str(error)})
        return 1
    _say(answers, {"row": row.to_json()})
    return 0


def _say(answers: IO[str], what: dict[str, object]) -> None:
    answers.write(MARK + json.dumps(what) + "\n")
    answers.flush()


if __name__ == "__main__":
    sys.exit(main())
