"""The course: one delay after the other, between the same far ends, each load in a process of its own."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from pilotfish.daemon.certify.probe_driver import Deadline, Material, OutOfTime, ProbeDriver
from pilotfish.daemon.certify.probe_process import RemoteProbe
from pilotfish.daemon.certify.probe_wire import options_to_json, setting_from_json
from pilotfish.daemon.config.types import Engine
from pilotfish.daemon.farends.looking import look
from pilotfish.daemon.lab.spread.block_costs import block_costs
from pilotfish.daemon.lab.spread.delay_proxy import DelayProxy
from pilotfish.daemon.lab.spread.spread_child import ALONE, ANSWERS, ask_child
from pilotfish.daemon.lab.spread.spread_row import WIDTHS, BlockCost, SpreadAnswer, SpreadRow, SpreadSize
from pilotfish.daemon.lab.workloads import MODES
from pilotfish.daemon.registry.spread import with_far_ends
from pilotfish.hooks.errors import PilotfishError
from pilotfish.hooks.types import EngineOptions, EngineSetting
from pilotfish.manifests.pins import pin_file

PROBING = 600.0  # seconds that timing and comparing blocks may take at one delay
LEAVING = 30.0  # seconds that a far end may take to notice that a near end is gone
LOOKING = 0.2
GREEDY = MODES[0].name

Address = tuple[str, int]
Job = Mapping[str, Any]


@dataclass(slots=True)
class SpreadCourse:
    """`path`, a GGUF, over `far_ends` at each of `delays`, in seconds one way.

    `stage` hears what comes next. `ask` has a job done in another process, and `time_blocks` opens a probe there.
    """

    path: Path
    far_ends: Sequence[Address]
    delays: Sequence[float]
    size: SpreadSize
    widths: Sequence[int] = WIDTHS
    stage: Callable[[str], None] = lambda what: None
    ask: Callable[[Job, Callable[[str], None]], dict[str, Any]] = ask_child
    time_blocks: Callable[[Path, EngineSetting, EngineOptions, Sequence[int]], tuple[BlockCost, ...]] = field(
        default=lambda *how: probed_blocks(*how)
    )
    until_free: Callable[[Sequence[str]], None] = lambda endpoints: _until_free(endpoints)
    _alone: dict[str, tuple[int, ...]] = field(default_factory=dict)  # greedy ids by workload

    def run(self) -> Iterator[SpreadRow]:
        """Every row as it is done. What fails costs its row."""
        for delay in self.delays:
            with tempfile.TemporaryDirectory(prefix="pf-spread-") as folder:
                try:
                    yield self._row(delay, Path(folder))
                except PilotfishError as error:
                    yield SpreadRow(delay, failed=str(error))
                except OutOfTime:
                    yield SpreadRow(delay, failed=f"blocks could not be timed within {PROBING:.0f} s")

    def _row(self, delay: float, state: Path) -> SpreadRow:
        def stage(what: str) -> None:
            self.stage(f"{1000 * delay:g} ms: {what}")

        job = {"path": str(self.path), "size": asdict(self.size), "state": str(state)}
        with self._behind(delay) as endpoints:
            options = self._options(endpoints, state)
            found = self.ask({**job, "what": ANSWERS, "options": options_to_json(options)}, stage)
        row, setting = replace(SpreadRow.from_json(found["row"]), delay=delay), found["setting"]
        if not self._alone:
            same = {"endpoints": [f"{host}:{port}" for host, port in self.far_ends]}
            how = {"setting": setting, "block": found["block"], "prompts": found["prompts"]}
            given = self.ask({**job, "what": ALONE, **same, **how}, stage)["ids"]
            self._alone = {name: tuple(ids) for name, ids in given.items()}
        stage("timing blocks")
        with self._behind(delay) as endpoints:
            blocks = self.time_blocks(
                self.path, setting_from_json(setting), self._options(endpoints, state), self.widths
            )
        return replace(row, blocks=blocks, answers=tuple(map(self._compared, row.answers)))

    def _compared(self, answer: SpreadAnswer) -> SpreadAnswer:
        """With what the same split gave without pilotfish."""
        return replace(answer, apart=answer.ids == self._alone[answer.workload]) if answer.mode == GREEDY else answer

    def _options(self, endpoints: Sequence[str], state: Path) -> EngineOptions:
        """Looks at the far ends as every load does. Raises EngineError."""
        self.until_free(endpoints)
        own = EngineOptions(n_ctx=self.size.context, threads=self.size.threads, state_dir=state)
        return with_far_ends(own, Engine(rpc=tuple(endpoints)))

    @contextlib.contextmanager
    def _behind(self, delay: float) -> Iterator[list[str]]:
        """The far ends as they are reached over a network with that delay."""
        with contextlib.ExitStack() as stack:
            yield [stack.enter_context(DelayProxy(far_end, delay)).endpoint for far_end in self.far_ends]


def _until_free(endpoints: Sequence[str]) -> None:
    """Wait for far ends that have not noticed yet that a process before is gone."""
    ends = time.monotonic() + LEAVING
    while any(seen.busy for seen in look(endpoints)) and time.monotonic() < ends:
        time.sleep(LOOKING)


def probed_blocks(
    path: Path, setting: EngineSetting, options: EngineOptions, widths: Sequence[int]
) -> tuple[BlockCost, ...]:
    """Blocks of these widths, in a probe's process. Raises EngineError, BrokenModel, OutOfTime."""
    deadline = Deadline(PROBING)
    probe = RemoteProbe(pin_file(path, options.state_dir), setting, max(widths), options, deadline)
    try:
        material = Material(probe.n_vocab, (), None)
        return block_costs(ProbeDriver(probe, material, deadline, options.batch_size), widths)
    finally:
        probe.close()
