"""Loads plugins, keeps what they register, and calls their hooks one plugin at a time.

A plugin counts as a whole: while it loads, its registrations go to a shelf of its own, which is emptied into the
registry only once every one of its registration hooks has returned. One that raises before that leaves nothing
behind. pluggy would stop a hook's whole chain at the first exception, so no hook is ever broadcast: each plugin is
called alone, and what it raises, be it a SystemExit, becomes a `Problem` with the plugin's file and line.
"""

from __future__ import annotations

import difflib
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from types import MappingProxyType
from typing import Any

import pluggy

from pilotfish.daemon.config.reader import to_table
from pilotfish.daemon.config.types import Config
from pilotfish.daemon.kernels.kernels_here import take_kernels
from pilotfish.daemon.registry import plugin_sources
from pilotfish.daemon.registry.libllama_folder import take_libllama_from
from pilotfish.daemon.registry.plugin_sources import PluginSource
from pilotfish.daemon.registry.plugin_trouble import LEFT_OUT, Problem, problem_of, reraise_interrupt
from pilotfish.hooks import specs
from pilotfish.hooks.declared import placement_of
from pilotfish.hooks.errors import ProtocolViolation, UsageError
from pilotfish.hooks.protocols import Bridge, Drafter, Verifier, Vocabulary
from pilotfish.hooks.types import SessionInfo, SessionReport, TargetPin

log = logging.getLogger("pilotfish.registry")

_KINDS = ("drafters", "bridges", "verifiers")
_Factory = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class PluginInfo:
    """A plugin in force and what it registered."""

    name: str
    origin: str  # "built-in", "entry point" or "folder"
    where: str
    drafters: tuple[str, ...] = ()
    bridges: tuple[str, ...] = ()
    verifiers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Entry:
    """One registered factory and whose it is."""

    source: PluginSource
    factory: _Factory


@dataclass(slots=True)
class _Shelf:
    """What one plugin registers while it loads: kind -> name -> factory."""

    kinds: dict[str, dict[str, _Factory]] = field(default_factory=lambda: {kind: {} for kind in _KINDS})
    closed: bool = False

    def register(self, kind: str) -> Callable[[str, _Factory], None]:
        shelf = self.kinds[kind]

        def register(name: str, factory: _Factory) -> None:
            if self.closed:
                raise UsageError(
                    f"register({name!r}) came after the registration hook returned; call it inside the hook"
                )
            if not isinstance(name, str) or not name or not callable(factory):
                raise UsageError(f"register(name, factory) needs a name and a callable, got {name!r}, {factory!r}")
            if name in shelf:
                raise UsageError(f"the plugin registers {name!r} twice among its {kind}; give the second another name")
            shelf[name] = factory

        return register


class Registry:
    """The plugins in force. Made by `load`; safe to ask from any thread."""

    def __init__(self, config: Config | None = None) -> None:
        self._config = config or Config()
        self._manager = pluggy.PluginManager(specs.PROJECT)
        self._manager.add_hookspecs(specs)
        self._table = _frozen(to_table(self._config))  # for the registration hooks
        self._sources: dict[str, PluginSource] = {}
        self._entries: dict[str, dict[str, _Entry]] = {kind: {} for kind in _KINDS}
        self._plugins: list[PluginInfo] = []
        self._problems: dict[Problem, None] = {}  # an ordered set: a plugin that fails every time is listed once
        self._built: dict[tuple[str, str], Any] = {}
        self._lock = threading.RLock()

    @classmethod
    def load(cls, config: Config | None = None) -> Registry:
        """Built-ins first, then installed distributions, then the files of `config.plugins.folders`.

        Never raises for a plugin's sake: what could not be loaded is in `problems`.
        """
        registry = cls.built_in(config)
        folders = registry._config.plugins.folders
        found = (plugin_sources.entry_points(), plugin_sources.folder_files(folders))
        for source in chain.from_iterable(found):
            registry.add(source)
        return registry

    @classmethod
    def built_in(cls, config: Config | None = None) -> Registry:
        """The built-ins alone, for whoever only looks."""
        registry = cls(config)
        take_libllama_from(registry._config)
        take_kernels(registry._config)
        for source in plugin_sources.built_ins():
            registry.add(source)
        return registry

    def add(self, source: PluginSource) -> bool:
        """Load one plugin; False when it was left out, which `problems` then explains."""
        plugin: object | None = None
        shelf = _Shelf()
        try:
            plugin = source.load()
            self._manager.register(plugin, source.name)
            self._manager.check_pending()
            for kind in _KINDS:
                self._call_one(
                    source.name, f"pilotfish_register_{kind}", register=shelf.register(kind), config=self._table
                )
        except BaseException as error:
            if plugin is not None and self._manager.get_plugin(source.name) is plugin:
                self._manager.unregister(plugin)
            self._report(source, error)
            return False
        finally:
            shelf.closed = True
        self._accept(source, shelf)
        return True

    @property
    def plugins(self) -> list[PluginInfo]:
        """The plugins in force, in the order they were loaded."""
        return list(self._plugins)

    @property
    def problems(self) -> list[Problem]:
        """What went wrong so far, oldest first, each kind once."""
        return list(self._problems)

    @property
    def drafters(self) -> tuple[str, ...]:
        """The names of all registered drafters."""
        return tuple(self._entries["drafters"])

    @property
    def verifiers(self) -> tuple[str, ...]:
        """The names of all registered verifiers."""
        return tuple(self._entries["verifiers"])

    def drafter(self, name: str) -> Drafter | None:
        """The drafter `name`, built on first use with its table `[drafters.<name>]`; None if it cannot be had."""
        drafter: Drafter | None = self._build("drafters", name, Drafter, self._config.drafters.tables.get(name, {}))
        return drafter

    def verifier(self, name: str) -> Verifier | None:
        """The verifier `name`, built on first use with its table `[verifiers.<name>]`; None if it cannot be had."""
        verifier: Verifier | None = self._build(
            "verifiers", name, Verifier, self._config.verifiers.tables.get(name, {})
        )
        return verifier

    def bridge(self, drafter: Vocabulary, target: Vocabulary) -> tuple[str, Bridge] | None:
        """The first bridge that opens between the two vocabularies, with its name; None if none does."""
        for name, entry in self._entries["bridges"].items():
            try:
                bridge = entry.factory(drafter, target)
                if bridge is not None:
                    return name, _checked(bridge, Bridge, f"bridge {name!r}")
            except BaseException as error:
                self._report(entry.source, error, f"bridge {name!r} skipped")
        return None

    def choose(self, target: TargetPin, available: Sequence[str]) -> tuple[str, ...]:
        """The drafters to use for `target`: the first plugin's opinion, else `available` as it is.

        Names that are not among `available` are dropped.
        """
        for source, chosen in self._ask("pilotfish_choose_drafters", target=target, available=tuple(available)):
            try:
                return _among(chosen, available)
            except BaseException as error:  # a list of the plugin's own kind may raise anything as it is read
                self._report(source, error, "choice ignored")
        return tuple(available)

    def remark(self, message: str) -> None:
        """List something among the `problems` that is no plugin's fault: an engine that cannot be used here."""
        self._add_problem(Problem("", "", message))

    @property
    def remarks(self) -> tuple[str, ...]:
        """What `remark` was told."""
        return tuple(problem.message for problem in self._problems if not problem.plugin and not problem.where)

    def notify_opened(self, session: SessionInfo) -> None:
        """Tell every observer that a request is about to be answered."""
        self._notify("pilotfish_session_opened", session=session)

    def notify_closed(self, session: SessionInfo, report: SessionReport) -> None:
        """Tell every observer what a session did."""
        self._notify("pilotfish_session_closed", session=session, report=report)

    def notify_pinned(self, pin: TargetPin) -> None:
        """Tell every observer that a model's pins were taken."""
        self._notify("pilotfish_model_pinned", pin=pin)

    def _accept(self, source: PluginSource, shelf: _Shelf) -> None:
        names: dict[str, tuple[str, ...]] = {}
        for kind, factories in shelf.kinds.items():
            entries = self._entries[kind]
            taken = [name for name in factories if name in entries]
            for name in taken:
                why = f"{kind[:-1]} {name!r} is already registered by {entries[name].source.name}; rename this one"
                self._report(source, UsageError(why), "registration refused")
            fresh = {name: _Entry(source, factory) for name, factory in factories.items() if name not in taken}
            entries.update(fresh)
            names[kind] = tuple(fresh)
        self._sources[source.name] = source
        self._plugins.append(PluginInfo(source.name, source.origin, source.where, **names))

    def _build(self, kind: str, name: str, protocol: type[Any], table: Mapping[str, Any]) -> Any:
        with self._lock:
            if (kind, name) not in self._built:
                self._built[kind, name] = self._construct(kind, name, protocol, table)
            return self._built[kind, name]

    def _construct(self, kind: str, name: str, protocol: type[Any], table: Mapping[str, Any]) -> Any:
        entry = self._entries[kind].get(name)
        if entry is None:
            self._unknown(kind, name)
            return None
        try:
            built = _checked(entry.factory(_frozen(table)), protocol, f"{kind[:-1]} {name!r}")
            if built.name != name:
                raise ProtocolViolation(f"registered as {name!r} but its name is {built.name!r}; make them equal")
            if isinstance(built, Drafter):
                placement_of(built)
            return built
        except BaseException as error:
            self._report(entry.source, error, f"{kind[:-1]} {name!r} not available")
            return None

    def _unknown(self, kind: str, name: str) -> None:
        known = list(self._entries[kind])
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(known) or 'none'}"
        self._add_problem(Problem("", "config", f"no {kind[:-1]} is named {name!r}; {hint}"))

    def _notify(self, hook: str, **arguments: object) -> None:
        for _ in self._ask(hook, **arguments):
            pass

    def _ask(self, hook: str, **arguments: object) -> Iterator[tuple[PluginSource, Any]]:
        """Call `hook` plugin by plugin in pluggy's order; yield the answers that are not None."""
        implementations = reversed(getattr(self._manager.hook, hook).get_hookimpls())
        for name in dict.fromkeys(implementation.plugin_name for implementation in implementations):
            try:
                answer = self._call_one(name, hook, **arguments)
            except BaseException as error:
                self._report(self._sources[name], error, f"{hook} failed")
                continue
            if answer is not None:
                yield self._sources[name], answer

    def _call_one(self, plugin: str, hook: str, **arguments: object) -> Any:
        others = [other for name, other in self._manager.list_name_plugin() if name != plugin]
        return self._manager.subset_hook_caller(hook, others)(**arguments)

    def _report(self, source: PluginSource, error: BaseException, consequence: str = LEFT_OUT) -> None:
        """Whatever a plugin raised becomes a problem; only the user's Ctrl-C goes on."""
        reraise_interrupt(error)
        self._add_problem(problem_of(source.name, source.where, error, consequence))
        log.debug("plugin %s", source.name, exc_info=error)

    def _add_problem(self, problem: Problem) -> None:
        if problem not in self._problems:
            self._problems[problem] = None
            log.warning("%s", problem)


def _checked(value: Any, protocol: type[Any], what: str) -> Any:
    if not isinstance(value, protocol):
        wanted = {**vars(protocol), **protocol.__annotations__}
        missing = [f"`{name}`" for name in wanted if not name.startswith("_") and not hasattr(value, name)]
        raise ProtocolViolation(
            f"{what}: {type(value).__name__} is not a {protocol.__name__}: it has no {' and no '.join(missing)}; "
            "see pilotfish.hooks.protocols"
        )
    return value


def _among(chosen: Any, available: Sequence[str]) -> tuple[str, ...]:
    if isinstance(chosen, str) or not isinstance(chosen, Sequence):
        raise UsageError(f"pilotfish_choose_drafters must return a list of names or None, got {chosen!r}")
    return tuple(name for name in dict.fromkeys(chosen) if name in available)


def _frozen(value: Any) -> Any:
    """The same tables and lists, read-only all the way down."""
    if isinstance(value, Mapping):
        return MappingProxyType({key: _frozen(item) for key, item in value.items()})
    return tuple(_frozen(item) for item in value) if isinstance(value, list | tuple) else value
