"""Which approaches this machine can run for a model, and why it cannot run the others."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pilotfish.daemon.config.types import Config, Drafters
from pilotfish.daemon.lab.approaches.approach import Approach
from pilotfish.daemon.lab.bench_systems import PLAIN, RUNNER, STOCK, System, on_engine
from pilotfish.manifests.audit import Audit

SMALL_MODELS: Mapping[str, tuple[str, str]] = {  # drafter -> what must be installed, and how
    "llama": ("llama_cpp", "pip install 'pilotfish[llama]'"),
    "mlx": ("mlx_lm", "pip install 'pilotfish[mlx]'"),
    "tinygrad": ("tinygrad", "pip install 'pilotfish[tinygrad]'"),
}
SUFFIX = "suffix"


@dataclass(frozen=True, slots=True)
class Machinery:
    """What there is to try: an engine of ours, a small model by name or path, a stock server and its modes."""

    config: Config
    engine: str
    small: str = ""
    small_path: Path | None = None  # its GGUF, which a stock server is given
    server: Path | None = None
    server_modes: tuple[str, ...] = ()  # values of its --spec-type
    audit: Audit = field(default_factory=Audit)


def approaches_here(machinery: Machinery) -> tuple[list[Approach], dict[str, str]]:
    """What can be tried, and by title why the rest cannot."""
    missing: dict[str, str] = {}
    found = [_ours(machinery, "suffix", "what followed before", Drafters((SUFFIX,), _table(machinery, SUFFIX)))]
    found += _small_models(machinery, missing)
    found += _stocks(machinery, missing)
    found += _assistant(machinery, missing)
    return found, missing


def _small_models(machinery: Machinery, missing: dict[str, str]) -> Iterator[Approach]:
    for name, (package, remedy) in SMALL_MODELS.items():
        title = f"a small model by {name}"
        table = _table(machinery, name).get(name, {})
        model = str(machinery.small or table.get("model", ""))
        if importlib.util.find_spec(package) is None:
            missing[title] = f"it is not installed: {remedy}"
        elif not model:
            missing[title] = "no small model is named: --small MODEL"
        else:
            drafters = Drafters((name,), {name: {**table, "model": model}})
            yield _ours(machinery, title, f"{model} drafts", drafters)


def _stocks(machinery: Machinery, missing: dict[str, str]) -> Iterator[Approach]:
    server = machinery.server
    if server is None:
        missing["stock's own modes"] = "no llama-server was found: --llama-server PATH"
        return
    for mode in (mode for mode in machinery.server_modes if mode.startswith("ngram")):
        yield _stock(server, f"stock {mode}", "--spec-type", mode)
    if machinery.small_path is not None:
        yield _stock(server, "stock with a small model", "--model-draft", str(machinery.small_path))


def _assistant(machinery: Machinery, missing: dict[str, str]) -> Iterator[Approach]:
    """An assistant that the model brings needs the model's own activations, which stock's server has."""
    title, server = "the bundled assistant", machinery.server
    if not machinery.audit.bundles_draft:
        missing[title] = "the model bundles none"
        return
    mode = next((mode for mode in machinery.server_modes if "mtp" in mode), None)
    if server is None or mode is None:
        missing[title] = "there is one, which only a stock server with an mtp mode can use: --llama-server PATH"
    else:
        yield _stock(server, title, "--spec-type", mode)


def _ours(machinery: Machinery, title: str, about: str, drafters: Drafters) -> Approach:
    engine = machinery.engine
    plain = System(
        on_engine(PLAIN, engine), "no drafts", "", RUNNER, fields={"speculate": False}, engine=engine,
        drafters=Drafters(()),
    )  # fmt: skip
    return Approach(title, about, plain, System(title, about, plain.name, RUNNER, engine=engine, drafters=drafters))


def _stock(server: Path, title: str, *flags: str) -> Approach:
    plain = System(STOCK, "stock llama-server, no drafts", server=(str(server),))
    return Approach(title, " ".join(flags[:2]), plain, System(title, title, STOCK, (str(server), *flags)))


def _table(machinery: Machinery, name: str) -> dict[str, Mapping[str, object]]:
    return {name: machinery.config.drafters.tables.get(name, {})}
