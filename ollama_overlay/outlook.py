"""What the installed models will run on under the overlay, as far as it is known before any of them is loaded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pilotfish.daemon.certify.verdicts import ModelReport, describe_models
from pilotfish.daemon.config import files
from pilotfish.daemon.config.types import Config
from pilotfish.hooks.errors import ConfigError, WorldError
from pilotfish.manifests.store import Store
from pilotfish.ollama_overlay.engines import FoundEngine, find_engines


@dataclass(frozen=True, slots=True)
class ModelOutlook:
    """One model: the engines one of which will compute it; where there is none, why the stock server will."""

    name: str
    engines: tuple[str, ...] = ()
    reason: str = ""
    missing: tuple[str, ...] = ()  # engines of which any would do, could it be used

    def __str__(self) -> str:
        if not self.engines:
            return f"stock, because {self.reason}"
        return " or ".join(self.engines) + (", as measurements will show" if len(self.engines) > 1 else "")


@dataclass(frozen=True, slots=True)
class Prospect:
    """The engines that were found, and an outlook for every model of the store; `trouble` says why there is none."""

    engines: tuple[FoundEngine, ...]
    store: str
    models: tuple[ModelOutlook, ...]
    trouble: str = ""

    def lines(self) -> Iterator[str]:
        """All of it, for people."""
        yield "\nengines"
        yield from _columns(
            (engine.name, f"{'' if engine.usable else 'no: '}{engine.detail}") for engine in self.engines
        )
        yield f"\nmodels in {self.store}" if self.store else "\nmodels"
        yield from _columns((model.name, str(model)) for model in self.models)
        if self.trouble or not self.models:
            yield f"  {self.trouble or 'none yet'}"
        yield from self._missing()

    def _missing(self) -> Iterator[str]:
        """For every engine with which more models would speculate, which ones, and what to do."""
        for engine in self.engines:
            if names := [model.name for model in self.models if engine.name in model.missing]:
                yield f"\nmissing for {', '.join(names)}\n  {engine.detail}"


def look(folder: Path, state_dir: Path) -> Prospect:
    """The prospect under the Ollama whose libraries are in `folder`. No model is loaded or hashed.

    What is wrong with a model, the store or the config is said in it.
    """
    try:
        config = files.load_or_last_good()
    except ConfigError as error:
        return Prospect((), "", (), f"all run on the stock server, because of the config: {error}")
    engines = find_engines(config, folder, state_dir)
    try:
        store = Store.find()
    except (ConfigError, WorldError) as error:
        return Prospect(engines, "", (), str(error))
    usable = {engine.name for engine in engines if engine.usable}
    reports = describe_models(store, state_dir, verify=False).models
    models = (_outlook(report, config.for_model(report.name), usable) for report in reports)
    return Prospect(engines, str(store.root), tuple(models))


def _outlook(report: ModelReport, config: Config, usable: set[str]) -> ModelOutlook:
    if not report.can_speculate:
        return ModelOutlook(report.name, reason=report.reason)
    if not config.speculation.enabled:
        return ModelOutlook(report.name, reason=f"speculation is switched off in {config.path or 'the config'}")
    wanted = config.engines
    engines = tuple(name for name in wanted if name in usable)
    if not engines:
        return ModelOutlook(report.name, reason=f"{' and '.join(wanted)} cannot be used", missing=wanted)
    return ModelOutlook(report.name, engines)


def _columns(rows: Iterator[tuple[str, str]]) -> Iterator[str]:
    found = list(rows)
    width = max((len(name) for name, _ in found), default=0)
    for name, text in found:
        yield f"  {name:<{width}}  {text}"
