"""Drafts on another machine, over HTTP, in one of three dialects.

`pilotfish` is the native draft protocol (`pilotfish draft-host` on the other side), `completion` a server that
continues raw prompts (llama-server, vLLM), `chat` one that only answers chats (Ollama, OpenAI's API). A server that is
dead, slow, wrong or gone costs its proposals and never the answer; after a few failures in a row it is left alone for
a while.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from pilotfish.hooks.errors import WorldError
from pilotfish.hooks.protocols import DrafterFactory, DraftSession, Host, Vocabulary
from pilotfish.hooks.specs import hookimpl
from pilotfish.hooks.types import EngineOptions, Footprint, Placement, TargetPin
from pilotfish.plugins.drafters._remote.breaker import Breaker
from pilotfish.plugins.drafters._remote.chat import ChatLink
from pilotfish.plugins.drafters._remote.completion import CompletionLink
from pilotfish.plugins.drafters._remote.config import RemoteConfig
from pilotfish.plugins.drafters._remote.http import Connections
from pilotfish.plugins.drafters._remote.native import NativeLink

log = logging.getLogger("pilotfish.drafters")


class Link(Protocol):
    """A server in one dialect."""

    drafter: str  # what drafts over there

    def load(self, target: TargetPin, options: EngineOptions) -> Vocabulary | None: ...

    def open(self, target: TargetPin, prompt: Sequence[int]) -> DraftSession: ...


_LINKS: dict[str, Callable[[RemoteConfig, Connections, Breaker], Link]] = {
    "pilotfish": NativeLink,
    "completion": CompletionLink,
    "chat": ChatLink,
}


class RemoteDrafter:
    """A drafter on another machine; see the module's docstring."""

    name = "remote"
    placement = Placement.REMOTE

    def __init__(self, config: Mapping[str, Any] | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self.config = RemoteConfig.parse(config)
        self.vocabulary: Vocabulary | None = None
        self._breaker = Breaker(clock)
        self._connections: Connections | None = None
        self._link: Link | None = None

    @property
    def url(self) -> str:
        return self.config.address.url

    def footprint(self, host: Host, target: TargetPin, options: EngineOptions) -> Footprint | None:
        """Nothing is needed on this machine."""
        return None

    def load(self, host: Host, target: TargetPin, options: EngineOptions) -> None:
        """Reach the server and agree with it. Raises WorldError or ConfigError."""
        self.unload()
        access = self.config.access()
        if access.token and not access.address.is_local and not access.address.tls:
            log.warning("%s: the secret travels unencrypted; give draft-host a certificate and use https", self.url)
        connections = Connections(access)
        try:
            link = _LINKS[self.config.dialect](self.config, connections, self._breaker)
            self.vocabulary = link.load(target, options)
        except BaseException:
            connections.close()
            raise
        self._breaker.succeeded()
        self._connections, self._link = connections, link

    def unload(self) -> None:
        connections, self._connections, self._link = self._connections, None, None
        if connections is not None:
            connections.close()

    def open(self, target: TargetPin, prompt: Sequence[int]) -> DraftSession:
        """Raises WorldError at once while the server rests after failures."""
        link = self._link
        if link is None:
            raise WorldError(f"{self.url}: is not loaded; load the drafter before a session")
        if self._breaker.resting:
            raise WorldError(f"{self.url}: {self._breaker.state()}")
        return link.open(target, prompt)

    def status(self) -> str:
        """One line for a person: what is where, what is spoken, and what is wrong if something is."""
        link = self._link
        if link is None:
            return f"{self.url} ({self.config.dialect}): not connected"
        what = "the target's ids" if self.vocabulary is None else "text"
        state = self._breaker.state() or "answers"
        return f"{link.drafter or 'a drafter'} at {self.url} ({self.config.dialect}, {what}): {state}"


@hookimpl
def pilotfish_register_drafters(register: Callable[[str, DrafterFactory], None]) -> None:
    register(RemoteDrafter.name, RemoteDrafter)
