"""The other end of the control socket: a question asked once, and a runner that lets itself be governed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp

from pilotfish.daemon.control.address import is_ours
from pilotfish.daemon.control.plans import Plan, Registration, Report
from pilotfish.daemon.core.live import Sight
from pilotfish.daemon.registry.plugin_trouble import reraise_interrupt
from pilotfish.hooks.errors import PilotfishError, RequestError, WorldError

log = logging.getLogger("pilotfish.control")

FIRST_RETRY, LAST_RETRY = 0.25, 5.0  # seconds between attempts to find a daemon
REPORT_EVERY = 1.0  # seconds, and only when there is news
LIVE_EVERY = 0.25  # seconds, and only while somebody looks
MOST_LIVE = 500  # events in one message
ANSWER_WITHIN = 5.0  # seconds
_MAX_LINE = 1 << 20  # bytes of one plan
_NO_LIMIT = aiohttp.ClientTimeout(total=None, connect=ANSWER_WITHIN)
_LAST_WORD = aiohttp.ClientTimeout(total=0.5)  # nobody waits longer for a runner to end
SOON = aiohttp.ClientTimeout(total=ANSWER_WITHIN)


@contextlib.asynccontextmanager
async def connected(path: Path) -> AsyncIterator[aiohttp.ClientSession]:
    """A session whose every request goes to the daemon at `path`. Raises WorldError when nothing of ours is there."""
    if not is_ours(path):
        raise WorldError(f"no daemon at {path}; start one with: pilotfish daemon")
    connector = aiohttp.UnixConnector(path=str(path))
    async with aiohttp.ClientSession("http://pilotfish", connector=connector, read_bufsize=_MAX_LINE) as session:
        yield session


async def ask_status(path: Path) -> dict[str, Any] | None:
    """What the daemon at `path` knows; None when none answers."""
    try:
        async with connected(path) as session, session.get("/v1/status", timeout=SOON) as response:
            status = await response.json(content_type=None)
            return status if response.status == 200 and isinstance(status, dict) else None
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError, PilotfishError):
        return None


class ControlClient:
    """A runner's link to the daemon, whether there is one or not, now or later.

    `on_plan` is awaited for every plan, one at a time; `report` is asked for news. `on_watch` is told when somebody
    begins or ceases to look at requests, and in between `live` is asked for at most so many events. Nothing that goes
    wrong here, in the daemon or in the callbacks, gets out: the runner goes on with the last plan it had.
    """

    def __init__(
        self,
        path: Path,
        registration: Registration,
        on_plan: Callable[[Plan], Awaitable[None]],
        report: Callable[[], Report],
        *,
        retry: float = FIRST_RETRY,
        report_every: float = REPORT_EVERY,
        on_watch: Callable[[Sight], None] = lambda sight: None,
        live: Callable[[int], list[dict[str, Any]]] = lambda most: [],
    ) -> None:
        self.connected = False
        self._path = path
        self._registration = registration
        self._on_plan = on_plan
        self._report = report
        self._first_retry = retry
        self._report_every = report_every
        self._on_watch = on_watch
        self._live = live
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Look for a daemon from now on, on the running event loop."""
        self._task = asyncio.create_task(self._run(), name="governed")

    async def close(self) -> None:
        """Hang up. Safe at any time, more than once."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        pause = self._first_retry
        while True:
            try:
                await self._follow()
            except (aiohttp.ClientError, OSError, TimeoutError, ValueError, PilotfishError) as error:
                log.debug("%s: %s", self._path, error)
            except Exception:
                log.exception("the link to the daemon failed; it will be tried again")
            if self.connected:
                log.warning("the daemon at %s is gone; its last plan stays in force", self._path)
                self.connected, pause = False, self._first_retry
            await asyncio.sleep(pause)
            pause = min(2 * pause, LAST_RETRY)

    async def _follow(self) -> None:
        """Register and take plans until the daemon hangs up."""
        async with connected(self._path) as session:
            body = self._registration.to_json()
            async with session.post("/v1/runners", json=body, timeout=_NO_LIMIT) as response:
                if response.status != 200:
                    raise RequestError(f"the daemon refused: {await response.text()}")
                log.info("governed by the daemon at %s", self._path)
                self.connected = True
                await self._take_plans(session, response)

    async def _take_plans(self, session: aiohttp.ClientSession, response: aiohttp.ClientResponse) -> None:
        reporting: asyncio.Task[None] | None = None
        telling: asyncio.Task[None] | None = None
        try:
            async for line in response.content:
                table = json.loads(line)
                if "watch" in table:
                    await _ended(telling)
                    telling = self._watched(session, str(table["runner"]), Sight(table["watch"]))
                    continue
                if reporting is None:
                    reporting = asyncio.create_task(self._send_reports(session, str(table["runner"])))
                await self._obey(Plan.from_json(table))
        finally:
            self._on_watch(Sight.NOTHING)
            await _ended(reporting)
            await _ended(telling)

    def _watched(self, session: aiohttp.ClientSession, runner: str, sight: Sight) -> asyncio.Task[None] | None:
        self._on_watch(sight)
        if sight is Sight.NOTHING:
            return None
        return asyncio.create_task(self._send_live(session, runner))

    async def _send_live(self, session: aiohttp.ClientSession, runner: str) -> None:
        while True:
            if events := self._happened():
                await self._send(session, f"/v1/runners/{runner}/live", {"events": events})
            await asyncio.sleep(LIVE_EVERY)

    def _happened(self) -> list[dict[str, Any]]:
        try:
            return self._live(MOST_LIVE)
        except BaseException as error:
            _raise_if_ours(error)
            log.debug("no events", exc_info=error)
            return []

    async def _obey(self, plan: Plan) -> None:
        try:
            await self._on_plan(plan)
        except BaseException as error:
            _raise_if_ours(error)
            log.exception("a plan could not be followed; what was in force stays")

    async def _send_reports(self, session: aiohttp.ClientSession, runner: str) -> None:
        route, sent = f"/v1/runners/{runner}/report", None
        try:
            while True:
                report = self._asked()
                if report is not None and report != sent and await self._send(session, route, report.to_json()):
                    sent = report
                await asyncio.sleep(self._report_every)
        finally:  # what came since would be lost with this process
            report = self._asked()
            if report is not None and report != sent:
                await self._send(session, route, report.to_json(), _LAST_WORD)

    def _asked(self) -> Report | None:
        """The report, or None when a plugin that is asked for its part of it fails."""
        try:
            return self._report()
        except BaseException as error:
            _raise_if_ours(error)
            log.debug("no report", exc_info=error)
            return None

    async def _send(
        self, session: aiohttp.ClientSession, route: str, body: dict[str, Any], within: aiohttp.ClientTimeout = SOON
    ) -> bool:
        """Whether it arrived. A daemon that is gone is noticed by whoever reads its plans."""
        try:
            async with session.post(route, json=body, timeout=within) as response:
                return response.status == 200
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            log.debug("%s not sent: %s", route, error)
            return False


async def _ended(task: asyncio.Task[None] | None) -> None:
    if task is not None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _raise_if_ours(error: BaseException) -> None:
    """Raise `error` again if it ends this task or the process; what plugins raise in a callback may look the same."""
    task = asyncio.current_task()
    if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
        raise error
    reraise_interrupt(error)
