"""From a parsed TOML table to a config and back: every value checked once, every complaint with its key's path."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pilotfish.daemon.config.section import Section
from pilotfish.daemon.config.types import (
    CHOICES,
    KERNELS,
    LIBLLAMA,
    MAX_WIDTH,
    PROMPTS,
    TEMPLATES,
    Config,
    Daemon,
    Drafters,
    Engine,
    Front,
    ModelSettings,
    Page,
    Plugins,
    Promotion,
    Speculation,
    Verifiers,
    model_key,
)
from pilotfish.daemon.farends.rpc_endpoint import rpc_endpoints
from pilotfish.hooks.errors import ConfigError, InvalidModelName
from pilotfish.hooks.types import Parity
from pilotfish.manifests.names import ModelName


def parse(table: Mapping[str, Any], path: Path | None = None) -> Config:
    """A config from a parsed TOML table. Unknown keys warn with the nearest known one. Raises ConfigError."""
    top = Section(table, str(path or "config"))
    base = path.absolute().parent if path else Path.cwd()
    config = Config(
        speculation=_speculation(top.section("speculation")),
        drafters=_drafters(top.section("drafters")),
        promotion=_promotion(top.section("promotion")),
        verifiers=Verifiers(top.section("verifiers").tables()),
        models=_models(top.section("models")),
        plugins=_plugins(top.section("plugins"), base),
        engine=_engine(top.section("engine"), base),
        daemon=_daemon(top.section("daemon"), base),
        front=_front(top.section("front")),
        page=_page(top.section("page")),
        path=path,
    )
    top.warn_unknown()
    return config


def to_table(config: Config) -> dict[str, Any]:
    """The config in the shape of its file, JSON-ready; `parse(to_table(config), config.path)` is `config`."""
    return {
        "speculation": asdict(config.speculation),
        "drafters": {"order": list(config.drafters.order), **config.drafters.tables},
        "promotion": asdict(config.promotion),
        "verifiers": dict(config.verifiers.tables),
        "models": {name: _said(settings) for name, settings in config.models.items()},
        "plugins": {"folders": [str(folder) for folder in config.plugins.folders]},
        "engine": _said(config.engine),
        "daemon": {"socket": str(config.daemon.socket or "")},
        "front": asdict(config.front),
        "page": asdict(config.page),
    }


def _said(settings: ModelSettings | Engine) -> dict[str, Any]:
    said = {key: value for key, value in asdict(settings).items() if value is not None}
    return {key: list(value) if isinstance(value, tuple) else value for key, value in said.items()}


def _speculation(section: Section) -> Speculation:
    default = Speculation()
    read = Speculation(
        enabled=section.flag("enabled", default.enabled),
        parity=Parity(section.choice("parity", default.parity, list(Parity))),
        max_loss=section.real("max_loss", default.max_loss, 0.0, 1.0),
        max_width=section.whole("max_width", default.max_width, 1, MAX_WIDTH),
        deadline_ms=section.whole("deadline_ms", default.deadline_ms, 1, 60_000),
        require_promotion=section.flag("require_promotion", default.require_promotion),
    )
    section.warn_unknown()
    return read


def _drafters(section: Section) -> Drafters:
    return Drafters(section.strings("order", Drafters().order), section.tables())


def _promotion(section: Section) -> Promotion:
    default = Promotion()
    read = Promotion(
        min_gain=section.real("min_gain", default.min_gain, 0.0, 10.0),
        max_first_token_loss=section.real("max_first_token_loss", default.max_first_token_loss, 0.0, 10.0),
    )
    section.warn_unknown()
    return read


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
        parity=Parity(section.choice("parity", "", list(Parity))) if "parity" in section else None,
        max_width=section.whole("max_width", 1, 1, MAX_WIDTH) if "max_width" in section else None,
        rpc=_far_ends(section) if "rpc" in section else None,
    )
    section.warn_unknown()
    return read


def _plugins(section: Section, base: Path) -> Plugins:
    plugins = Plugins(section.paths("folders", base))
    section.warn_unknown()
    return plugins


def _engine(section: Section, base: Path) -> Engine:
    default = Engine()
    engine = Engine(
        choice=section.choice("choice", default.choice, CHOICES),
        libllama=_libllama(section, default.libllama, base),
        kernels=section.choice("kernels", default.kernels, KERNELS),
        sidecar_idle_s=section.whole("sidecar_idle_s", default.sidecar_idle_s, 0, 86_400),
        certify_idle_s=section.whole("certify_idle_s", default.certify_idle_s, 0, 86_400),
        certify_budget_s=section.whole("certify_budget_s", default.certify_budget_s, 0, 86_400),
        prompts=section.choice("prompts", default.prompts, PROMPTS),
        cache_ram_share=section.real("cache_ram_share", default.cache_ram_share, 0.0, 1.0),
        cache_disk_mib=section.whole("cache_disk_mib", default.cache_disk_mib, 0, 1 << 30),
        rpc=_far_ends(section),
        tensor_split=section.reals("tensor_split", default.tensor_split, 0.0, 1e6),
        rpc_deadline_s=section.whole("rpc_deadline_s", default.rpc_deadline_s, 1, 86_400),
        rpc_fallback=section.flag("rpc_fallback", default.rpc_fallback),
    )
    section.warn_unknown()
    return engine


def _libllama(section: Section, default: str, base: Path) -> str:
    """One of the names, or a folder, which has a separator in it."""
    name = section.text("libllama", default)
    if name in LIBLLAMA:
        return name
    if os.sep not in name:
        expected = f"expected one of {', '.join(map(repr, LIBLLAMA))}, or the path of a folder"
        raise ConfigError(f"{section.where('libllama')}: {expected}, got {name!r}")
    return str(section.path("libllama", base))


def _far_ends(section: Section) -> tuple[str, ...]:
    try:
        return tuple(str(address) for address in rpc_endpoints(section.strings("rpc", ())))
    except ValueError as error:
        raise ConfigError(f"{section.where('rpc')}: {error}") from error


def _daemon(section: Section, base: Path) -> Daemon:
    daemon = Daemon(section.path("socket", base))
    section.warn_unknown()
    return daemon


def _front(section: Section) -> Front:
    default = Front()
    front = Front(
        host=section.text("host", default.host),
        upstream=section.text("upstream", default.upstream),
        serve_gguf=section.flag("serve_gguf", default.serve_gguf),
        templates=section.choice("templates", default.templates, TEMPLATES),
    )
    section.warn_unknown()
    return front


def _page(section: Section) -> Page:
    default = Page()
    page = Page(
        enabled=section.flag("enabled", default.enabled),
        host=section.text("host", default.host),
        history=section.flag("history", default.history),
    )
    section.warn_unknown()
    return page
