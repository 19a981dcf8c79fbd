"""Ending a runner while nobody looks, so that Ollama's next request loads the model again, elsewhere.

Ollama asks for `/health` before every request, and loads a model again when the answer is no good; but a request that
has heard "ok" and then meets nobody fails. So the runner goes only when nothing at all has arrived for some seconds,
and from that moment on `/health` fails.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from aiohttp import web

from pilotfish.hooks.errors import EngineError

QUIET_SECONDS = 5.0
POLL_SECONDS = 0.5
_HEALTH = ("/health", "/v1/health")


class Handover:
    """Everything here belongs to the event loop."""

    def __init__(self, quiet_seconds: float = QUIET_SECONDS, clock: Callable[[], float] = time.monotonic) -> None:
        self._quiet_seconds = quiet_seconds
        self._clock = clock
        self._last = clock()
        self._open = 0  # requests
        self._going = ""

    @web.middleware
    async def watch(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """Note every request while it lasts."""
        if self._going and request.path in _HEALTH:
            raise EngineError(self._going)
        self._open += 1
        try:
            return await handler(request)
        finally:
            self._open -= 1
            self._last = self._clock()

    @property
    def quiet(self) -> bool:
        """Whether nothing is being answered and nothing arrived for a while."""
        return self._open == 0 and self._clock() - self._last >= self._quiet_seconds

    async def moment(self, why: Callable[[], str], poll_seconds: float = POLL_SECONDS) -> str:
        """Wait until there is a reason to go and a moment to do it in; the reason. From then on `/health` fails."""
        while not ((reason := why()) and self.quiet):  # noqa: ASYNC110 - nobody tells when nothing happens
            await asyncio.sleep(poll_seconds)
        self._going = reason
        return reason
