"""The course of a diagnosis: soundness first, then every past and width, the first operation, the least prefix."""

from __future__ import annotations

import contextlib
import itertools
from dataclasses import dataclass, field, replace

from pilotfish.daemon.certify.candidates import prompt_block
from pilotfish.daemon.certify.probe_driver import Deadline, OutOfTime
from pilotfish.daemon.certify.reproductions import ForwardShape, Reproduction
from pilotfish.daemon.certify.task import OpenProbe, Progress, silent
from pilotfish.daemon.lab.diagnose.diagnosis import ClassParting, Diagnosis, FaultKind, PastKind
from pilotfish.daemon.lab.diagnose.partings import Tracer
from pilotfish.daemon.lab.diagnose.pasts import Pasts
from pilotfish.daemon.lab.diagnose.replaying import PROPOSALS, HistoryReplay, room
from pilotfish.daemon.lab.diagnose.shrinking import part, shortened
from pilotfish.daemon.lab.diagnose.soundness import faults_of, inspection_faults
from pilotfish.hooks.errors import EngineError, UsageError
from pilotfish.hooks.protocols import Probe
from pilotfish.hooks.types import EngineOptions

MOST_PAIRS = 4  # of classes that are compared operation by operation
PLAIN_OPTIONS = EngineOptions()


@dataclass
class Diagnosing:
    """One diagnosis of `asked`. `open_probe(setting, deadline)` opens a probe with room for all widths."""

    asked: Reproduction
    open_probe: OpenProbe
    deadline: Deadline
    options: EngineOptions = PLAIN_OPTIONS
    progress: Progress = silent
    notes: list[str] = field(default_factory=list)

    def run(self) -> Diagnosis:
        """Raises EngineError or BrokenModel where a setting cannot be loaded, UsageError where the ids do not fit."""
        with contextlib.ExitStack() as stack:
            self.progress(f"loading: {self.asked.plain.setting.title}")
            plain = self._opened(self.asked.plain, stack)
            same = self.asked.plain.setting == self.asked.other.setting
            other = plain if same else self._opened(self.asked.other, stack)
            return self._diagnosed(plain, other)

    def _opened(self, shape: ForwardShape, stack: contextlib.ExitStack) -> Probe:
        try:
            probe = self.open_probe(shape.setting, self.deadline)
        except OutOfTime as error:
            raise EngineError(
                f"{self.asked.model}: time ran out while it was loaded: give it more with --budget"
            ) from error
        stack.callback(probe.close)
        if too_large := [id for id in self.asked.all_ids() if id >= probe.n_vocab]:
            raise UsageError(f"{self.asked.model} has {probe.n_vocab} tokens, and no id {too_large[0]}; name its model")
        if len(self.asked.prefix) + room(self.asked) > probe.n_ctx:
            raise UsageError(f"a prefix of {len(self.asked.prefix)} ids leaves no room in {probe.n_ctx} of context")
        return probe

    def _diagnosed(self, plain: Probe, other: Probe) -> Diagnosis:
        ours, theirs = self._replays(plain, other, self.asked)
        diagnosis = Diagnosis(self.asked.model, other.engine.version, self.asked, self._widths())
        try:
            for step in (self._sound, self._pasts, self._parting, self._between, self._shortened):
                diagnosis = step(diagnosis, ours, theirs)
                if any(fault.fatal for fault in diagnosis.faults):
                    break
        except OutOfTime:
            diagnosis = replace(diagnosis, complete=False)
            self.notes.append("time ran out before everything was compared: give it more with --budget")
        return replace(diagnosis, notes=tuple(self.notes))

    def _sound(self, so_far: Diagnosis, ours: HistoryReplay, theirs: HistoryReplay) -> Diagnosis:
        self.progress("checking that forwards repeat themselves")
        faults = [*faults_of(theirs, self.asked.other.width)]
        if not any(fault.fatal for fault in faults):
            faults += inspection_faults(theirs, self.asked.other.width)
            faults += inspection_faults(ours, self.asked.plain.width)
        return replace(so_far, faults=tuple(faults))

    def _pasts(self, so_far: Diagnosis, ours: HistoryReplay, theirs: HistoryReplay) -> Diagnosis:
        compared = Pasts(theirs, so_far.tried, self.asked.plain.width)
        for kind in (PastKind.SINGLE, PastKind.BLOCKS, PastKind.FRESH):
            self.progress(f"comparing {len(so_far.tried)} widths after {kind}")
            so_far = replace(so_far, pasts=(*so_far.pasts, compared.look(kind)))
        return so_far

    def _parting(self, so_far: Diagnosis, ours: HistoryReplay, theirs: HistoryReplay) -> Diagnosis:
        self.progress("looking for the first operation that differs")
        if not part(ours, theirs) or any(fault.kind is FaultKind.INSPECTED for fault in so_far.faults):
            return so_far
        try:
            found = Tracer(ours, theirs).find()
            if not found:
                self.notes.append("no operation that both forwards have differs in what can be compared of it")
                return so_far
            return replace(so_far, parting=found[0], decisive=found[1] if len(found) > 1 else None)
        except EngineError as error:
            self.notes.append(str(error))
            return so_far

    def _between(self, so_far: Diagnosis, ours: HistoryReplay, theirs: HistoryReplay) -> Diagnosis:
        """Attention may part one width from all others, and weights others among themselves."""
        if so_far.parting is None:
            return so_far
        asked = (self.asked.plain.width, self.asked.other.width)
        firsts = [group[0] for group in so_far.pasts[-1].classes]
        for widths in [pair for pair in itertools.pairwise(firsts) if pair != asked][:MOST_PAIRS]:
            self.progress(f"looking for what parts widths {widths[0]} and {widths[1]}")
            for found in Tracer(theirs, theirs, widths).find()[:1]:
                so_far = replace(so_far, between=(*so_far.between, ClassParting(widths, found)))
        return so_far

    def _shortened(self, so_far: Diagnosis, ours: HistoryReplay, theirs: HistoryReplay) -> Diagnosis:
        if not part(ours, theirs):
            return so_far
        self.progress("shortening the prefix")
        least = shortened(self.asked, theirs.ids, lambda asked: self._replays(ours.probe, theirs.probe, asked))
        return replace(so_far, minimal=least)

    def _widths(self) -> tuple[int, ...]:
        """With no proposal up to 16, and the two that were asked about."""
        return tuple(sorted({*range(1, PROPOSALS + 2), self.asked.plain.width, self.asked.other.width}))

    def _replays(self, plain: Probe, other: Probe, asked: Reproduction) -> tuple[HistoryReplay, HistoryReplay]:
        """One for each probe; the same twice where that is one."""
        theirs = self._replay(other, asked)
        return theirs if plain is other else self._replay(plain, asked), theirs

    def _replay(self, probe: Probe, asked: Reproduction) -> HistoryReplay:
        return HistoryReplay(probe, asked, prompt_block(self.options, probe.engine.name), self.deadline)
