"""Loading settings for a certification, each in a probe of its own. All engines must cut text into the same tokens."""

from __future__ import annotations

import contextlib
import logging
from dataclasses import dataclass

from pilotfish.daemon.certify.candidates import prompt_block
from pilotfish.daemon.certify.probe_driver import Deadline, Material, ProbeDriver
from pilotfish.daemon.certify.task import CertificationTask, OpenProbe, Progress
from pilotfish.hooks.errors import BrokenModel, PilotfishError
from pilotfish.hooks.types import EngineSetting

log = logging.getLogger("pilotfish.certifier")


@dataclass(frozen=True, slots=True)
class Opened:
    """A loaded setting; `load` is the seconds that it took until the first forward could run."""

    setting: EngineSetting
    driver: ProbeDriver
    load: float


class Opener:
    """Opens probes. `versions` has what each engine that was loaded says of itself."""

    def __init__(self, task: CertificationTask, open_probe: OpenProbe, progress: Progress) -> None:
        self.versions: dict[str, str] = {}
        self._task, self._open_probe, self._progress = task, open_probe, progress
        self._open_part = task.open_part
        self._text: list[int] = []  # as the first engine cuts it

    def open(self, setting: EngineSetting, deadline: Deadline, stack: contextlib.ExitStack) -> Opened:
        """Load a setting until `stack` is left.

        Raises EngineError, BrokenModel, also where an engine cuts text into other tokens than the first, or OutOfTime.
        """
        self._progress(f"loading: {setting.title}")
        return self._opened(self._open_probe, setting, deadline, stack)

    def open_part(self, setting: EngineSetting, deadline: Deadline, stack: contextlib.ExitStack) -> Opened | None:
        """The part of the model that tells of its rows; None where only the whole does. Raises OutOfTime."""
        if self._open_part is None:
            return None
        try:
            return self._opened(self._open_part, setting, deadline, stack)
        except PilotfishError as error:
            log.warning("%s: a part of it tells nothing: %s", self._task.model, error)
            self._open_part = None
            return None

    def _opened(
        self, open_probe: OpenProbe, setting: EngineSetting, deadline: Deadline, stack: contextlib.ExitStack
    ) -> Opened:
        deadline.check()
        before = deadline.left
        probe = open_probe(setting, deadline)
        stack.callback(probe.close)
        load = before - deadline.left
        text = probe.encode(self._task.text)
        if self._text and text != self._text:
            raise BrokenModel(f"{self._task.model}: {setting.engine} cuts text into other tokens than libllama")
        self._text = text
        self.versions[setting.engine] = probe.engine.version
        block = prompt_block(self._task.options, setting.engine)
        material = Material(probe.n_vocab, text, self._task.bos, self._task.regressions)
        return Opened(setting, ProbeDriver(probe, material, deadline, block), load)
