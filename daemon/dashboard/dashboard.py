"""The page's side of a daemon: hears what the governor hears, keeps the account, and tells whoever looks.

While nobody looks it adds up reports and writes the history now and then. Runners are asked for what happens in their
requests only while somebody does.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from pilotfish.daemon.config.paths import state_dir
from pilotfish.daemon.control.governor import Governor
from pilotfish.daemon.control.happenings import KEPT, Happening
from pilotfish.daemon.core.live import Sight
from pilotfish.daemon.dashboard.account import Account
from pilotfish.daemon.dashboard.history import AccountHistory, News
from pilotfish.daemon.dashboard.page_token import PageToken
from pilotfish.daemon.dashboard.shelf import Shelf
from pilotfish.daemon.dashboard.state import StateOfThings
from pilotfish.daemon.dashboard.viewers import PageMessage, Viewers
from pilotfish.manifests.store import Store

log = logging.getLogger("pilotfish.dashboard")

SAVE_EVERY = 60.0  # seconds, and only where there is news
TELL_EVERY = 1.0  # seconds between two looks for news, while somebody looks
TELL_ANYWAY = 5.0  # seconds after which how things stand is told again: memory changes without news


class Dashboard:
    """`state`, `token`, `viewers`, `account` and `shelf` are what the API serves."""

    def __init__(self, governor: Governor, store: Store, folder: Path | None = None) -> None:
        """`folder` is the state folder."""
        folder = folder or state_dir()
        self.governor = governor
        self.token = PageToken(folder)
        self.viewers = Viewers(governor.watch)
        self.account = Account()
        self.shelf = Shelf(store, folder, config=lambda: governor.config)
        self._history = AccountHistory(folder) if governor.config.page.history else None
        self._unsaved: list[Happening] = []
        self.state = StateOfThings(governor, self.shelf, self.account, self.trouble)

    def trouble(self) -> str:
        """Why no history is kept although it should be; empty otherwise."""
        return self._history.trouble if self._history else ""

    @contextlib.asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        """Hear and tell until the block ends."""
        await self._restore()
        self.governor.happenings.heard.append(self._happened)
        self.governor.reported.append(self.account.reported)
        self.governor.lived.append(self.viewers.lived)
        self.governor.happenings.add("daemon", "", "the daemon has started")
        ending = asyncio.Event()
        saving, telling = (asyncio.create_task(each, name="page") for each in (self._saving(ending), self._telling()))
        try:
            yield
        finally:
            self.viewers.close()
            telling.cancel()
            ending.set()  # no cancellation: a thread that writes goes on, beside the last save
            await asyncio.gather(saving, telling, return_exceptions=True)
            await self.shelf.close()

    def events(self) -> list[dict[str, Any]]:
        """The last thousand things that happened, oldest first."""
        return [happening.to_json() for happening in self.governor.happenings.all(self.shelf.decisions)]

    def _happened(self, happening: Happening) -> None:
        if self._history:
            self._unsaved.append(happening)
        self.viewers.tell(PageMessage("happened", happening.to_json()))

    async def _restore(self) -> None:
        if self._history is None:
            return
        kept = await asyncio.to_thread(self._history.load)
        self.account.restore(kept.cells, kept.processes)
        self._unsaved += self.governor.happenings.all()
        self.governor.happenings.remember(kept.happenings)

    async def _saving(self, ending: asyncio.Event) -> None:
        last = False
        while not last:
            with contextlib.suppress(TimeoutError):
                last = await asyncio.wait_for(ending.wait(), SAVE_EVERY)
            await self._save()

    async def _save(self) -> None:
        account, first = self.account, self.account.forget()
        added, moved, happenings = account.added, account.moved, self._unsaved
        account.added, account.moved, self._unsaved = {}, set(), []
        if self._history is None or not (added or moved or happenings):
            return
        processes = {process: account.processes[process] for process in moved if process in account.processes}
        if not await asyncio.to_thread(self._history.save, News(first, added, processes, happenings)):
            account.not_saved(added, moved)
            self._unsaved = [*happenings, *self._unsaved][-KEPT:]

    async def _telling(self) -> None:
        """Tell how things stand whenever that is another, while somebody looks."""
        told, ago = -1, 0.0
        while True:
            if not len(self.viewers):
                self.viewers.changed.clear()
                await self.viewers.changed.wait()
                told = -1
            try:
                looked = await self.shelf.look()
                if looked or told != self.governor.news or ago >= TELL_ANYWAY:
                    told, ago = self.governor.news, 0.0
                    self.viewers.forget(self.governor.runners)
                    self.viewers.tell(PageMessage("state", self.state.json()))
            except Exception:
                log.exception("how things stand cannot be told; it will be tried again")
            await asyncio.sleep(TELL_EVERY)
            ago += TELL_EVERY


def sight_of(wanted: str, *, may_see_text: bool) -> Sight:
    """How much a viewer gets of what it wants."""
    sight = Sight(wanted) if wanted in set(Sight) else Sight.TEXT
    return Sight.ROUNDS if sight is Sight.TEXT and not may_see_text else sight
