"""Loads a plugin file as the folder loader would, and puts everything it registers through the checks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from pilotfish.daemon.config.types import Config
from pilotfish.daemon.drafters.local_host import LocalHost
from pilotfish.daemon.lab.conformance.bridges import examine_bridges
from pilotfish.daemon.lab.conformance.drafter_checks import CHECKS, Check
from pilotfish.daemon.lab.conformance.harness import Harness, Nonconformance, made_up_target, supervised
from pilotfish.daemon.lab.conformance.loading_checks import Loading
from pilotfish.daemon.lab.conformance.patience import PATIENCE, CallWatch, Hangs
from pilotfish.daemon.lab.conformance.report import FAILED, NOT_RUN, CheckResult, PluginReport, Verdict
from pilotfish.daemon.lab.conformance.running import run_check
from pilotfish.daemon.lab.conformance.verifiers import examine_verifier
from pilotfish.daemon.registry import plugin_sources
from pilotfish.daemon.registry.plugin_sources import PluginSource
from pilotfish.daemon.registry.registry import PluginInfo, Registry
from pilotfish.hooks.errors import UsageError
from pilotfish.hooks.protocols import Drafter, Host, LoadableDrafter
from pilotfish.hooks.types import EngineOptions, Placement, TargetPin


@dataclass(frozen=True, slots=True)
class Setup:
    """With what the checks are made.

    Drafters that load nothing are given a history of `long` ids; the others one that is a little longer than the
    context they are asked for, so that they meet a full one, and shorter sessions, since they compute.
    """

    config: Config
    host: Host = field(default_factory=lambda: LocalHost(owner="pilotfish conformance"))
    target: TargetPin = field(default_factory=made_up_target)
    model: Path | None = None  # what verifiers load; without one they are not checked
    deterministic: bool = False
    patience: float = PATIENCE  # seconds for each call
    options: EngineOptions = field(default_factory=lambda: EngineOptions(n_ctx=256))
    long: int = 20_000
    tell: Callable[[str], None] = lambda text: None  # what is being done, for a person who waits


def examine_file(path: Path, setup: Setup, name: str | None = None) -> PluginReport:
    """Everything that `path` registers, or `name` of it, put through the checks.

    Raises UsageError when the folder loader would not take the file for a plugin, or when `name` is not in it.
    """
    source, registry = _source(path.absolute()), Registry(setup.config)
    try:
        _load(registry, source, str(path), setup.patience)
    except (Nonconformance, Hangs) as error:
        return PluginReport(str(path), problems=(str(error),))
    if not registry.plugins:
        return PluginReport(str(path), problems=_problems(registry))
    [info] = registry.plugins
    if name is not None and name not in (*info.drafters, *info.bridges, *info.verifiers):
        raise UsageError(f"{path} registers no {name!r}; it registers {_listed(info) or 'nothing'}")
    problems = [*_problems(registry), *_emptiness(path, info), *_taken(info, setup.config, name)]
    verdicts = [_drafter(registry, one, setup) for one in info.drafters if name in (None, one)]
    bridges = [one for one in info.bridges if name in (None, one)]
    verdicts += examine_bridges(registry, bridges, setup.patience)
    verifiers = [one for one in info.verifiers if name in (None, one)]
    verdicts += [examine_verifier(registry, one, setup.model, setup.options, setup.tell) for one in verifiers]
    return PluginReport(str(path), tuple(verdicts), tuple(problems))


def examine_drafter(name: str, setup: Setup) -> PluginReport:
    """The drafter `name`, built in or of any plugin in force, put through the checks. Raises UsageError if none is."""
    registry = Registry.load(setup.config)
    if name not in registry.drafters:
        known = ", ".join(registry.drafters)
        raise UsageError(f"no drafter is named {name!r} and no plugin file either; drafters: {known}; files end in .py")
    return PluginReport(name, (_drafter(registry, name, setup),))


def _source(path: Path) -> PluginSource:
    if not path.is_file():
        raise UsageError(f"{path} is not a file; give the path of a plugin, a .py file")
    for source in plugin_sources.folder_files([path.parent]):
        if source.name == str(path):
            return source
    raise UsageError(f"{path} would not be loaded: a plugin's name ends in .py and begins with neither _ nor a dot")


def _load(registry: Registry, source: PluginSource, path: str, patience: float) -> None:
    def load() -> None:
        with supervised(watch, "import", f"loading {path}"):
            registry.add(source)

    with CallWatch(patience) as watch:
        watch.run(load)


def _problems(registry: Registry) -> tuple[str, ...]:
    return tuple(map(str, registry.problems))


def _listed(info: PluginInfo) -> str:
    return ", ".join((*info.drafters, *info.bridges, *info.verifiers))


def _emptiness(path: Path, info: PluginInfo) -> list[str]:
    if _listed(info):
        return []
    return [
        f"{path} registers nothing; call register(name, factory) in a function pilotfish_register_drafters that is "
        "marked with @hookimpl"
    ]


def _taken(info: PluginInfo, config: Config, name: str | None) -> list[str]:
    """Names that pilotfish would refuse, because a built-in or an installed plugin has them."""
    registry = Registry.load(replace(config, plugins=replace(config.plugins, folders=())))
    bridges = {bridge for plugin in registry.plugins for bridge in plugin.bridges}
    return [
        f"the {kind} {one!r} would be refused: that name is registered already; rename it"
        for kind, mine, theirs in (("drafter", info.drafters, registry.drafters), ("bridge", info.bridges, bridges))
        for one in mine
        if one in theirs and name in (None, one)
    ]


def _drafter(registry: Registry, name: str, setup: Setup) -> Verdict:
    with CallWatch(setup.patience) as watch:
        first, drafter = _built(registry, name, watch)
        if drafter is None:
            return Verdict("drafter", name, (first,))
        loading = Loading(drafter, setup.host, setup.options) if isinstance(drafter, LoadableDrafter) else None
        harness = Harness(drafter, setup.target, deterministic=setup.deterministic, long=setup.long, watch=watch)
        if loading:
            harness = replace(harness, long=setup.options.n_ctx + 44, rounds=30)
        results = (first, *_checked(harness, loading, setup.tell))
        return Verdict("drafter", name, results, watch.slowest, _slow(watch, drafter, setup.config))


def _built(registry: Registry, name: str, watch: CallWatch) -> tuple[CheckResult, Drafter | None]:
    built: list[Drafter] = []

    def build() -> None:
        with supervised(watch, "build", f"building {name} from [drafters.{name}]"):
            drafter = registry.drafter(name)
        if drafter is None:
            raise Nonconformance(str(registry.problems[-1]))
        built.append(drafter)

    demand = f"Its factory takes the table [drafters.{name}] and gives a drafter of that name."
    result = run_check("is built", demand, build, watch)
    return result, built[0] if built else None


def _checked(harness: Harness, loading: Loading | None, tell: Callable[[str], None]) -> list[CheckResult]:
    """Every check's result; when the drafter cannot be loaded, those of the rest are `not run`."""
    if loading is None:
        return [_on(check, harness, tell) for check in CHECKS]
    loaded = _on(loading.check, harness, tell)
    rest = (*CHECKS, loading.last_check)
    if loaded.outcome == FAILED:
        return [loaded, *(CheckResult(c.name, c.demand, NOT_RUN, "it could not be loaded") for c in rest)]
    return [loaded, *(_on(check, harness, tell) for check in rest)]


def _on(check: Check, harness: Harness, tell: Callable[[str], None]) -> CheckResult:
    tell(f"{harness.drafter.name}: {check.name}")
    return run_check(check.name, check.demand, lambda: check.run(harness), harness.watch)


def _slow(watch: CallWatch, drafter: Drafter, config: Config) -> str:
    deadline = config.speculation.deadline_ms
    took = watch.slowest.get("propose", 0.0) * 1000
    if drafter.placement is Placement.INLINE or took <= deadline or watch.given_up:
        return ""
    return (
        f"its slowest proposal took {took:.0f} ms; in use a drafter that takes more than speculation.deadline_ms "
        f"({deadline} ms) for one is dropped for that request"
    )
