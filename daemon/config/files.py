"""The configuration: a TOML file parsed once into types that cannot be wrong.

The file in force is the first that is named or exists: `$PILOTFISH_CONFIG`, the user's, the system's. The last one
that was good is kept under the state folder, so that a bad edit costs nothing but a line in the log.
"""

from __future__ import annotations

import contextlib
import json
import logging
import stat
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import tomli

from pilotfish.daemon.config.paths import config_dir, state_dir
from pilotfish.daemon.config.section import Section, read_text
from pilotfish.hooks.environment import variable
from pilotfish.hooks.errors import ConfigError, InvalidModelName
from pilotfish.manifests.names import ModelName
from pilotfish.manifests.remembered import write_atomically

log = logging.getLogger("pilotfish.config")

FILE_NAME = "pilotfish.toml"
SYSTEM_FILE = Path("/etc/pilotfish") / FILE_NAME
LAST_GOOD = "last-good-config.json"
PARITY = ("stock", "lane", "none")  # from the strictest promise to none at all
LIBLLAMA = ("bundled", "ollama")
MAX_WIDTH = 64


@dataclass(frozen=True, slots=True)
class Speculation:
    """`[speculation]`"""

    enabled: bool = True
    parity: str = "lane"  # the least that must be promised about an answer's ids for drafts to be used
    max_loss: float = 0.01  # share of the plain time that may be lost by trying
    max_width: int = 16  # tokens in one forward: the pending one and the proposals
    deadline_ms: int = 250  # how long a drafter that is not inline may take to propose


@dataclass(frozen=True, slots=True)
class Drafters:
    """`[drafters]`: the order of preference; `[drafters.<name>]` tables are handed to the drafter as they are."""

    order: tuple[str, ...] = ("suffix",)
    tables: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Verifiers:
    """`[verifiers.<name>]`: tables that are handed to the verifier as they are."""

    tables: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """`[models."name:tag"]`: what differs for one model; None leaves the general setting in force."""

    enabled: bool | None = None
    drafters: tuple[str, ...] | None = None
    parity: str | None = None
    max_width: int | None = None


@dataclass(frozen=True, slots=True)
class Plugins:
    """`[plugins]`: folders whose `.py` files are loaded as plugins."""

    folders: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class Engine:
    """`[engine]`: whose libllama computes, the one pilotfish installs or the one of the user's Ollama."""

    libllama: str = "bundled"
    sidecar_idle_s: int = 120  # how long a stock server that was started beside a runner may idle
    certify_idle_s: int = 60  # how long nobody must have asked for anything before a model is certified
    certify_budget_s: int = 240  # how long that may take; 0: only `pilotfish certify` certifies


@dataclass(frozen=True, slots=True)
class Daemon:
    """`[daemon]`: the control socket; None means the platform's runtime folder."""

    socket: Path | None = None


@dataclass(frozen=True, slots=True)
class Front:
    """`[front]`: where `pilotfish serve` listens, in any form that OLLAMA_HOST may have."""

    host: str = "127.0.0.1:11435"


@dataclass(frozen=True, slots=True)
class Config:
    """Everything the config file can say. `path` is where it came from, None for the defaults."""

    speculation: Speculation = field(default_factory=Speculation)
    drafters: Drafters = field(default_factory=Drafters)
    verifiers: Verifiers = field(default_factory=Verifiers)
    models: Mapping[str, ModelSettings] = field(default_factory=dict)
    plugins: Plugins = field(default_factory=Plugins)
    engine: Engine = field(default_factory=Engine)
    daemon: Daemon = field(default_factory=Daemon)
    front: Front = field(default_factory=Front)
    path: Path | None = None

    def for_model(self, name: str) -> Config:
        """What is in force for one model: its own settings over the general ones, and no `models` any more.

        Names count as equal where Ollama would take them for one model. A name that is none has no settings.
        """
        mine = self.models.get(model_key(self.models, name) or "", ModelSettings())
        general = self.speculation
        speculation = replace(
            general,
            enabled=general.enabled if mine.enabled is None else mine.enabled,
            parity=mine.parity or general.parity,
            max_width=mine.max_width or general.max_width,
        )
        order = self.drafters.order if mine.drafters is None else mine.drafters
        return replace(self, speculation=speculation, drafters=replace(self.drafters, order=order), models={})

    def for_models(self, names: Sequence[str]) -> Config:
        """What is in force for models that share their weights, and so a runner: of each setting the strictest.

        The drafters are those of the first; without names, the general settings.
        """
        each = [self.for_model(name) for name in names] or [replace(self, models={})]
        speculation = replace(
            each[0].speculation,
            enabled=all(config.speculation.enabled for config in each),
            parity=min((config.speculation.parity for config in each), key=PARITY.index),
            max_width=min(config.speculation.max_width for config in each),
        )
        return replace(each[0], speculation=speculation)


def model_key(models: Mapping[str, Any], name: str) -> str | None:
    """The key of `models` that means the model `name`; None when there is none."""
    try:
        wanted = ModelName.parse(name).folded
    except InvalidModelName:
        return None
    return next((key for key in models if ModelName.parse(key).folded == wanted), None)


def candidates() -> tuple[Path, ...]:
    """Where the config file is looked for, first come first served."""
    if named := variable("PILOTFISH_CONFIG"):
        return (Path(named),)
    try:
        return (config_dir() / FILE_NAME, SYSTEM_FILE)
    except ConfigError:  # a service's user without a home folder
        return (SYSTEM_FILE,)


def find() -> Path | None:
    """The config file in force: `$PILOTFISH_CONFIG` whether it exists or not, the user's, then the system's."""
    if variable("PILOTFISH_CONFIG"):
        return candidates()[0]
    return next((path for path in candidates() if _may_be_there(path)), None)


def _may_be_there(path: Path) -> bool:
    """One that may not be looked at counts, so that reading it says so: what it switches off must not be ignored."""
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True


def load(path: Path | None = None) -> Config:
    """Read `path` (or the file found by `find`). Raises ConfigError naming the file and the key's path."""
    path = path or find()
    return Config() if path is None else parse(_read(path)[0], path)


def load_written(path: Path) -> Config:
    """Like `load`, for a file that is expected to say something: an empty one is an accident. Raises ConfigError."""
    table, text = _read(path)
    if not text.strip():
        raise ConfigError(f"{path}: is empty; write a setting or a comment into it, or delete it, to have the defaults")
    return parse(table, path)


def load_or_last_good(path: Path | None = None) -> Config:
    """The file's config or, when it is broken or was emptied, the last good one of the same file, with a warning.

    Raises ConfigError when there is no last good one either.
    """
    path = path or find()
    if path is None:
        return Config()
    try:
        config = load_written(path)
    except ConfigError as error:
        if (good := last_good(path)) is None:
            return load(path)
        log.warning("%s; the last good config stays in force", error)
        return good
    remember_good(config)
    return config


def remember_good(config: Config) -> None:
    """Keep `config` as the last good one of its file. A state folder that cannot be written does without."""
    text = json.dumps({"path": str((config.path or Path()).absolute()), "config": to_table(config)}, default=str)
    with contextlib.suppress(OSError, ConfigError):
        place = state_dir() / LAST_GOOD
        if not place.is_file() or place.read_bytes() != text.encode():
            write_atomically(place, text.encode())


def last_good(path: Path) -> Config | None:
    """The last good config of the file `path`; None when none is known."""
    try:
        saved = json.loads((state_dir() / LAST_GOOD).read_text())
        return parse(saved["config"], path) if saved["path"] == str(path.absolute()) else None
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError, ConfigError):
        return None


def parse(table: Mapping[str, Any], path: Path | None = None) -> Config:
    """A config from a parsed TOML table. Unknown keys warn with the nearest known one. Raises ConfigError."""
    top = Section(table, str(path or "config"))
    base = path.absolute().parent if path else Path.cwd()
    config = Config(
        speculation=_speculation(top.section("speculation")),
        drafters=_drafters(top.section("drafters")),
        verifiers=Verifiers(top.section("verifiers").tables()),
        models=_models(top.section("models")),
        plugins=_plugins(top.section("plugins"), base),
        engine=_engine(top.section("engine")),
        daemon=_daemon(top.section("daemon"), base),
        front=_front(top.section("front")),
        path=path,
    )
    top.warn_unknown()
    return config


def to_table(config: Config) -> dict[str, Any]:
    """The config in the shape of its file, JSON-ready; `parse(to_table(config), config.path)` is `config`."""
    return {
        "speculation": asdict(config.speculation),
        "drafters": {"order": list(config.drafters.order), **config.drafters.tables},
        "verifiers": dict(config.verifiers.tables),
        "models": {name: _said(settings) for name, settings in config.models.items()},
        "plugins": {"folders": [str(folder) for folder in config.plugins.folders]},
        "engine": asdict(config.engine),
        "daemon": {"socket": str(config.daemon.socket or "")},
        "front": asdict(config.front),
    }


def _said(settings: ModelSettings) -> dict[str, Any]:
    said = {key: value for key, value in asdict(settings).items() if value is not None}
    return {key: list(value) if isinstance(value, tuple) else value for key, value in said.items()}


def _read(path: Path) -> tuple[dict[str, Any], str]:
    text = read_text(path)
    try:
        return tomli.loads(text), text
    except (ValueError, RecursionError) as error:  # ValueError: bad TOML, or a number of thousands of digits
        raise ConfigError(f"{path}: not valid TOML: {error}") from error


def _speculation(section: Section) -> Speculation:
    default = Speculation()
    read = Speculation(
        enabled=section.flag("enabled", default.enabled),
        parity=section.choice("parity", default.parity, PARITY),
        max_loss=section.real("max_loss", default.max_loss, 0.0, 1.0),
        max_width=section.whole("max_width", default.max_width, 1, MAX_WIDTH),
        deadline_ms=section.whole("deadline_ms", default.deadline_ms, 1, 60_000),
    )
    section.warn_unknown()
    return read


def _drafters(section: Section) -> Drafters:
    return Drafters(section.strings("order", Drafters().order), section.tables())


def _models(section: Section) -> dict[str, ModelSettings]:
    models: dict[str, ModelSettings] = {}
    for name, own in section.sections():
        try:
            ModelName.parse(name)
        except InvalidModelName as error:
            raise ConfigError(f"{section.where(name)}: {error}") from error
        if twin := model_key(models, name):
            raise ConfigError(f"{section.where(name)}: the same model as {section.where(twin)}; keep one of the two")
        models[name] = _model(own)
    return models


def _model(section: Section) -> ModelSettings:
    read = ModelSettings(
        enabled=section.flag("enabled", True) if "enabled" in section else None,
        drafters=section.strings("drafters", ()) if "drafters" in section else None,
        parity=section.choice("parity", "", PARITY) if "parity" in section else None,
        max_width=section.whole("max_width", 1, 1, MAX_WIDTH) if "max_width" in section else None,
    )
    section.warn_unknown()
    return read


def _plugins(section: Section, base: Path) -> Plugins:
    plugins = Plugins(section.paths("folders", base))
    section.warn_unknown()
    return plugins


def _engine(section: Section) -> Engine:
    default = Engine()
    engine = Engine(
        libllama=section.choice("libllama", default.libllama, LIBLLAMA),
        sidecar_idle_s=section.whole("sidecar_idle_s", default.sidecar_idle_s, 0, 86_400),
        certify_idle_s=section.whole("certify_idle_s", default.certify_idle_s, 0, 86_400),
        certify_budget_s=section.whole("certify_budget_s", default.certify_budget_s, 0, 86_400),
    )
    section.warn_unknown()
    return engine


def _daemon(section: Section, base: Path) -> Daemon:
    daemon = Daemon(section.path("socket", base))
    section.warn_unknown()
    return daemon


def _front(section: Section) -> Front:
    front = Front(section.text("host", Front().host))
    section.warn_unknown()
    return front
