"""A connection whose events are somebody else's, once it is known whose."""

from __future__ import annotations

import asyncio
from abc import abstractmethod


class HandedOn(asyncio.Protocol):
    """What arrives is its own affair; the rest goes to `side`."""

    @property
    @abstractmethod
    def side(self) -> asyncio.Protocol | None:
        """Who has the connection; None while nobody does."""

    def eof_received(self) -> bool | None:
        return self.side.eof_received() if self.side else None

    def pause_writing(self) -> None:
        if self.side:
            self.side.pause_writing()

    def resume_writing(self) -> None:
        if self.side:
            self.side.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.side:
            self.side.connection_lost(exc)
