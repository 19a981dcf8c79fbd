"""A drafter in a process of its own, which looks like one beside the target.

For drafters that must not share the runner's process (`Placement.PROCESS`): an engine that keeps the interpreter busy,
takes a device for itself or may crash. The child is `pilotfish draft-host` on a Unix socket in a folder that only this
user can enter, with this process's config; it ends with this process, however that ends.
"""

from __future__ import annotations

import contextlib
import json
import logging
import queue
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import tomlkit

from pilotfish.daemon.config.reader import to_table
from pilotfish.daemon.config.types import Config, Drafters
from pilotfish.daemon.processes.own_folder import OwnFolder
from pilotfish.daemon.processes.parent_death import tied_environment
from pilotfish.daemon.registry import plugin_sources
from pilotfish.daemon.registry.registry import Registry
from pilotfish.hooks.errors import EngineError, PilotfishError, ProtocolViolation
from pilotfish.hooks.protocols import DraftSession, Host, LoadableDrafter, Vocabulary
from pilotfish.hooks.types import EngineOptions, Footprint, Placement, TargetPin

log = logging.getLogger("pilotfish.hosting")

START_WITHIN = 60.0  # seconds until the child listens; it loads the drafter afterwards
STOP_WITHIN = 5.0  # seconds between SIGTERM and SIGKILL
_MOMENT = 0.5  # seconds
_LAST_LINES = 8
_LONGEST_LINE = 1 << 16  # bytes; what a plugin prints there without an end is taken in pieces
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
        self._child: Child | None = None
        self._remote: LoadableDrafter | None = None
        self._lock = threading.Lock()

    @property
    def alive(self) -> bool:
        """Whether the child runs."""
        return self._child is not None and self._child.exit_code is None

    def footprint(self, host: Host, target: TargetPin, options: EngineOptions) -> Footprint | None:
        return self._drafter.footprint(host, target, options)

    def load(self, host: Host, target: TargetPin, options: EngineOptions) -> None:
        """Start the child and have it load the drafter. Raises EngineError with its last words, or what it raised."""
        self.unload()
        child = Child([*self._command, "draft-host", self.name], self._config)
        try:
            child.wait_until_it_listens(START_WITHIN)
            remote = remote_drafter(child.url)
            remote.load(host, target, options)
        except BaseException:
            child.stop()
            raise
        with self._lock:
            self._child, self._remote, self.vocabulary = child, remote, remote.vocabulary

    def open(self, target: TargetPin, prompt: Sequence[int]) -> DraftSession:
        """Raises EngineError when the child is not there, and what the drafter raises."""
        child, remote = self._child, self._remote
        if child is None or remote is None:
            raise EngineError(f"{self.name}: its process is not started; load the drafter before a session")
        try:
            return remote.open(target, prompt)
        except PilotfishError as error:
            if child.has_ended():
                ended = f"{self.name}: its process {child.last_words()}"
                raise EngineError(f"{ended}; it is started again with the next load") from error
            raise

    def unload(self) -> None:
        with self._lock:
            child, remote = self._child, self._remote
            self._child = self._remote = None
        try:
            if remote is not None:
                remote.unload()
        finally:
            if child is not None:
                child.stop()

    def status(self) -> str:
        """One line for a person."""
        child = self._child
        if child is None:
            return f"{self.name}: its process is not started"
        if child.exit_code is not None:
            return f"{self.name}: its process {child.last_words()}"
        return f"{self.name}: in process {child.pid}"


class Child:
    """A draft host as a child process, its socket and its config in a folder of its own."""

    def __init__(self, command: Sequence[str], config: Config) -> None:
        """Raises EngineError when it cannot be started."""
        self._folder = OwnFolder()
        socket = self._folder.path / "s"
        self.url = f"unix:{socket}"
        self._lines: deque[str] = deque(maxlen=_LAST_LINES)
        self._ready: queue.SimpleQueue[bool] = queue.SimpleQueue()
        config_file = self._folder.path / "pilotfish.toml"
        config_file.write_text(tomlkit.dumps(_plain(to_table(config))))
        words = [*command, "--socket", str(socket), "--config", str(config_file), "--json"]
        try:
            self._process = subprocess.Popen(
                words,
                stdin=subprocess.PIPE,  # never written: it closes when this process ends, however it ends
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=tied_environment(),
                process_group=0,  # a Ctrl-C for this process is not meant for it
            )
        except OSError as error:
            self._folder.remove()
            raise EngineError(f"{words[0]}: cannot be started ({error.strerror}); install pilotfish again") from error
        self._reader = threading.Thread(target=self._read, name=f"child-{self._process.pid}", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative for the signal that ended it."""
        return self._process.poll()

    def wait_until_it_listens(self, within: float) -> None:
        """Raises EngineError, with its last words, when it ends before or takes too long."""
        try:
            listens = self._ready.get(timeout=within)
        except queue.Empty:
            raise EngineError(f"a draft host did not listen within {within:g} s: {self.last_words()}") from None
        if not listens:
            raise EngineError(f"a draft host could not start: {self.last_words()}")

    def has_ended(self) -> bool:
        """Whether it is gone, or goes within a moment: a broken connection may come before the end."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_MOMENT)
        return self.exit_code is not None

    def last_words(self) -> str:
        """How it ended and what it said last."""
        self.has_ended()
        code = self.exit_code
        if code is not None:
            self._reader.join(_MOMENT)
        how = (
            "is still running"
            if code is None
            else f"ended by signal {-code}"
            if code < 0
            else f"ended with code {code}"
        )
        return ": ".join((how, " / ".join(self._lines))) if self._lines else how

    def stop(self) -> None:
        """End it, and return when it has ended."""
        self._process.terminate()
        try:
            self._process.wait(STOP_WITHIN)
        except subprocess.TimeoutExpired:
            log.warning("process %d ignored SIGTERM for %.0f s; it is killed", self.pid, STOP_WITHIN)
            self._process.kill()
            self._process.wait()
        assert self._process.stdin is not None  # a pipe
        self._process.stdin.close()
        self._reader.join(STOP_WITHIN)
        self._folder.remove()

    def _read(self) -> None:
        """Its output, until the end: the line that says it listens, and what it complains about."""
        assert self._process.stdout is not None  # a pipe
        try:
            with self._process.stdout as output:
                for line in iter(lambda: output.readline(_LONGEST_LINE), b""):
                    self._hear(line.decode("utf-8", "replace").strip())
        finally:
            self._ready.put(False)

    def _hear(self, text: str) -> None:
        if _says_it_listens(text):
            self._ready.put(True)
        elif text:
            self._lines.append(text[-500:])
            log.debug("process %d: %s", self.pid, text)


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
