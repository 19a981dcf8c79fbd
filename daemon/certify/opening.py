"""Loading settings for a certification, each in a probe of its own. All engines must cut text into the same tokens."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from pilotfish.daemon.certify.candidates import prompt_block
from pilotfish.daemon.certify.probe_driver import Deadline, Material, ProbeDriver
from pilotfish.daemon.certify.task import CertificationTask, OpenProbe, Progress
from pilotfish.hooks.errors import BrokenModel
from pilotfish.hooks.types import EngineSetting


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
        self._text: list[int] = []  # as the first engine cuts it

    def open(self, setting: EngineSetting, deadline: Deadline, stack: contextlib.ExitStack) -> Opened:
        """Load a setting until `stack` is left.

        Raises EngineError, BrokenModel, also where an engine cuts text into other tokens than the first, or OutOfTime.
        """
        self._progress(f"loading: {setting.title}")
        deadline.check()
        before = deadline.left
        probe = self._open_probe(setting, deadline)
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
