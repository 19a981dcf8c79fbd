"""A model over far ends in a process of its own: `python -m pilotfish.daemon.lab.spread.spread_child JOB`.

libllama ends the process that loses a far end, and reads its environment once. JOB is JSON: `what` is `answers` or
`alone`. Each line of the answer begins with MARK: `{"stage"}` before each step, then `{"done"}` with what was found, or
`{"failed"}` with a reason.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

from pilotfish.daemon.processes.parent_death import end_with_stdin
from pilotfish.daemon.processes.threaded_child import ThreadedChild
from pilotfish.hooks.errors import EngineError, PilotfishError

MARK = "spread: "
MODULE = "pilotfish.daemon.lab.spread.spread_child"
LIMIT = 1800.0  # seconds for one job
ANSWERS, ALONE = "answers", "alone"

Stage = Callable[[str], None]


def ask_child(job: Mapping[str, Any], stage: Stage, module: str = MODULE) -> dict[str, Any]:
    """Have a job done in another process. Raises EngineError with its reason, or how it ended."""
    said: dict[str, Any] = {}
    ended = threading.Event()

    def hear(line: str) -> bool:
        """On the child's reading thread."""
        if not line.startswith(MARK):
            return False
        said.update(json.loads(line.removeprefix(MARK)))
        stage(str(said.get("stage", "")))
        return True

    child = ThreadedChild([sys.executable, "-m", module, json.dumps(job)], "spread", hear, ended.set)
    try:
        in_time = ended.wait(LIMIT)
        words = child.last_words() if in_time else f"nothing within {LIMIT:.0f} s"
    finally:
        child.stop()
    if "done" not in said:
        raise EngineError(f"{said.get('stage', 'starting')}: {said.get('failed') or words}")
    done: dict[str, Any] = said["done"]
    return done


def main() -> int:
    """Returns the exit code."""
    end_with_stdin()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print goes elsewhere
    job = json.loads(sys.argv[1])
    os.environ["PILOTFISH_STATE"] = job["state"]  # what drafters keep is nobody else's
    try:
        done = _JOBS[job["what"]](job, lambda what: _say(answers, {"stage": what}))
    except PilotfishError as error:
        _say(answers, {"failed": str(error)})
        return 1
    _say(answers, {"done": done})
    return 0


def _answers(job: Mapping[str, Any], stage: Stage) -> dict[str, Any]:
    from pilotfish.daemon.certify.probe_wire import options_from_json, setting_to_json
    from pilotfish.daemon.lab.spread.spread_answers import answers_row
    from pilotfish.daemon.lab.spread.spread_row import SpreadSize

    found = answers_row(Path(job["path"]), options_from_json(job["options"]), SpreadSize(**job["size"]), stage)
    return {
        "row": found.row.to_json(),
        "prompts": {name: list(ids) for name, ids in found.prompts.items()},
        "setting": setting_to_json(found.setting),
        "block": found.block,
    }


def _alone(job: Mapping[str, Any], stage: Stage) -> dict[str, Any]:
    from pilotfish.daemon.lab.spread.split_alone import SplitAlone

    stage("loading with libllama alone")
    split = SplitAlone(
        Path(job["path"]),
        job["endpoints"],
        job["setting"],
        context=job["size"]["context"],
        block=job["block"],
        threads=job["size"]["threads"],
    )
    found = {}
    for name, prompt in job["prompts"].items():
        stage(f"{name}, libllama alone")
        found[name] = split.greedy(prompt, job["size"]["tokens"])
    return {"ids": found}


def _say(answers: IO[str], what: dict[str, object]) -> None:
    answers.write(MARK + json.dumps(what) + "\n")
    answers.flush()


_JOBS: Mapping[str, Callable[[Mapping[str, Any], Stage], dict[str, Any]]] = {ANSWERS: _answers, ALONE: _alone}

if __name__ == "__main__":
    sys.exit(main())
