"""The daemon seen from outside: a config file as editors save it, its status, and runners that it governs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from pilotfish.daemon.control.control_client import ControlClient, ask_status
from pilotfish.daemon.control.plans import Plan, Registration, Report
from pilotfish.daemon.core.totals import Totals
from pilotfish.hooks.types import ConversationTotals
from tests.waiting import until


def save(path: Path, text: str) -> None:
    """As editors do it: write beside, then rename."""
    beside = path.with_name(f".{path.name}.new")
    beside.write_text(text)
    beside.replace(path)


async def status_once(socket: Path, true: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    """What the daemon at `socket` says, once it says so."""

    async def status() -> dict[str, Any] | None:
        found = await ask_status(socket)
        return found if found is not None and true(found) else None

    return await until(status, "the daemon never said so")


async def settled() -> None:
    """Long enough for a watch to have noticed whatever there is to notice."""
    await asyncio.sleep(0.3)


class FakeRunner:
    """A runner that remembers its plans; `fail` is raised on every plan, and for every report."""

    def __init__(
        self,
        path: Path,
        model: str = "smollm2:135m",
        *,
        pid: int = 7,
        aliases: tuple[str, ...] = (),
        started: float = 1.5,
        report_every: float = 0.02,
    ) -> None:
        self.plans: list[Plan] = []
        self.now = Report()
        self.fail: BaseException | None = None
        registration = Registration(
            pid, 4711, model, started, "sha256:ab", "bf16-f16", "lane", (1, 2), ("suffix",), aliases
        )
        self.link = ControlClient(path, registration, self._follow, self._report, retry=0.02, report_every=report_every)

    async def _follow(self, plan: Plan) -> None:
        self.plans.append(plan)
        if self.fail:
            raise self.fail

    def _report(self) -> Report:
        if self.fail:
            raise self.fail
        return self.now

    def did(
        self,
        pool: Mapping[str, Mapping[str, str]] | None = None,
        remembered: ConversationTotals | None = None,
        prompts: str = "",
        **totals: int,
    ) -> None:
        kept = remembered or ConversationTotals()
        self.now = replace(self.now, totals=Totals(**totals), pool=pool or {}, remembered=kept, prompts=prompts)

    @property
    def enabled(self) -> bool | None:
        return self.plans[-1].config.speculation.enabled if self.plans else None


@asynccontextmanager
async def running(path: Path, model: str = "smollm2:135m", **options: Any) -> AsyncIterator[FakeRunner]:
    """A fake runner, linked."""
    runner = FakeRunner(path, model, **options)
    runner.link.start()
    try:
        yield runner
    finally:
        await runner.link.close()
