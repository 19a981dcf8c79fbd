"""A drafter in a process of its own, which looks like one beside the target.

For drafters that must not share the runner's process (`Placement.PROCESS`): an engine that keeps the interpreter busy,
takes a device for itself or may crash. The child is `pilotfish draft-host` on a Unix socket in a folder that only this
user can enter, with this process's config; it ends with this process, however that ends.
"""

from __future__ import annotations

import contextlib
import json
import queue
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from pilotfish.daemon.config.reader import to_table
from pilotfish.daemon.config.types import Config, Drafters
from pilotfish.daemon.processes.own_folder import OwnFolder
from pilotfish.daemon.processes.threaded_child import ThreadedChild
from pilotfish.daemon.registry import plugin_sources
from pilotfish.daemon.registry.registry import Registry
from pilotfish.hooks.errors import EngineError, PilotfishError, ProtocolViolation
from pilotfish.hooks.protocols import DraftSession, Host, LoadableDrafter, Vocabulary
from pilotfish.hooks.types import EngineOptions, Footprint, Placement, TargetPin

START_WITHIN = 60.0  # seconds until the child listens; it loads the drafter afterwards
_REMOTE = "remote"


class HostedDrafter:
    """Runs `drafter`, as `config` describes it, in a child process while it is loaded.

    `drafter` itself is only asked for its footprint. A child that died is replaced by the next session's attempt to
    open, which fails, and the `load` that follows.
    """

    placement = Placement.THREAD

    def __init__(self, drafter: LoadableDrafter, config: Config, *, command: Sequence[str] = ()) -> None:
        """`command` replaces the program that is started, `pilotfish`."""
        self.name = drafter.name
        self.vocabulary: Vocabulary | None = None
        self._drafter = drafter
        self._config = config
        self._command = tuple(command) or (sys.executable, "-m", "pilotfish.daemon.cli")
        self._process: DraftHostProcess | None = None
        self._remote: LoadableDrafter | None = None
        self._lock = threading.Lock()

    @property
    def alive(self) -> bool:
        """Whether the child runs."""
        return self._process is not None and self._process.child.exit_code is None

    def footprint(self, host: Host, target: TargetPin, options: EngineOptions) -> Footprint | None:
        return self._drafter.footprint(host, target, options)

    def load(self, host: Host, target: TargetPin, options: EngineOptions) -> None:
        """Start the child and have it load the drafter. Raises EngineError with its last words, or what it raised."""
        self.unload()
        process = DraftHostProcess([*self._command, "draft-host", self.name], self._config)
        try:
            process.wait_until_it_listens(START_WITHIN)
            remote = remote_drafter(process.url)
            remote.load(host, target, options)
        except BaseException:
            process.stop()
            raise
        with self._lock:
            self._process, self._remote, self.vocabulary = process, remote, remote.vocabulary

    def open(self, target: TargetPin, prompt: Sequence[int]) -> DraftSession:
        """Raises EngineError when the child is not there, and what the drafter raises."""
        process, remote = self._process, self._remote
        if process is None or remote is None:
            raise EngineError(f"{self.name}: its process is not started; load the drafter before a session")
        try:
            return remote.open(target, prompt)
        except PilotfishError as error:
            if process.child.has_ended():
                ended = f"{self.name}: its process {process.child.last_words()}"
                raise EngineError(f"{ended}; it is started again with the next load") from error
            raise

    def unload(self) -> None:
        with self._lock:
            process, remote = self._process, self._remote
            self._process = self._remote = None
        try:
            if remote is not None:
                remote.unload()
        finally:
            if process is not None:
                process.stop()

    def status(self) -> str:
        """One line for a person."""
        process = self._process
        if process is None:
            return f"{self.name}: its process is not started"
        child = process.child
        if child.exit_code is not None:
            return f"{self.name}: its process {child.last_words()}"
        return f"{self.name}: in process {child.pid}"


class DraftHostProcess:
    """A draft host as a child process, its socket and its config in a folder of its own."""

    def __init__(self, command: Sequence[str], config: Config) -> None:
        """Raises EngineError when it cannot be started."""
        self._folder = OwnFolder()
        socket = self._folder.path / "s"
        self.url = f"unix:{socket}"
        self._listens: queue.SimpleQueue[bool] = queue.SimpleQueue()
        config_file = self._folder.path / "pilotfish.toml"
        import tomlkit  # no other load needs it

        config_file.write_text(tomlkit.dumps(_plain(to_table(config))))
        words = [*command, "--socket", str(socket), "--config", str(config_file), "--json"]
        try:
            self.child = ThreadedChild(words, "draft host", self._is_message, lambda: self._listens.put(False))
        except OSError as error:
            self._folder.remove()
            raise EngineError(f"{words[0]}: cannot be started ({error.strerror}); install pilotfish again") from error

    def wait_until_it_listens(self, within: float) -> None:
        """Raises EngineError, with its last words, when it ends before or takes too long."""
        try:
            listens = self._listens.get(timeout=within)
        except queue.Empty:
            raise EngineError(f"a draft host did not listen within {within:g} s: {self.child.last_words()}") from None
        if not listens:
            raise EngineError(f"a draft host could not start: {self.child.last_words()}")

    def stop(self) -> None:
        """End it, and return when it has ended."""
        self.child.stop()
        self._folder.remove()

    def _is_message(self, line: str) -> bool:
        """Whether the line is the one that says it listens."""
        if listens := _says_it_listens(line):
            self._listens.put(True)
        return listens


def remote_drafter(url: str) -> LoadableDrafter:
    """The drafter that speaks the native draft protocol with `url`."""
    registry = Registry(Config(drafters=Drafters(tables={_REMOTE: {"url": url}})))
    for source in plugin_sources.built_ins():
        if source.name.endswith(f".drafters.{_REMOTE}"):
            registry.add(source)
    drafter = registry.drafter(_REMOTE)
    if not isinstance(drafter, LoadableDrafter):
        raise ProtocolViolation(f"the drafter {_REMOTE!r} is not what it was; install pilotfish again")
    return drafter


def _says_it_listens(line: str) -> bool:
    if not line.startswith("{"):
        return False
    with contextlib.suppress(ValueError, RecursionError):
        return "url" in json.loads(line)
    return False


def _plain(value: Any) -> Any:
    """The same tables and lists in the types that TOML can be written from."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items() if item is not None}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
