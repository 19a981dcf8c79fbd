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
ASSISTANT = "the bundled assistant"
NO_SERVER = "no llama-server was found: --llama-server PATH"


@dataclass(frozen=True, slots=True)
class Machinery:
    """What there is to try: an engine of ours, a small model, a stock server and its modes, what the model brings."""

    config: Config
    engine: str
    small: str = ""  # as it was named
    small_path: Path | None = None  # its GGUF
    server: Path | None = None
    server_modes: tuple[str, ...] = ()  # values of its --spec-type
    audit: Audit = field(default_factory=Audit)
    assistant: Path | None = None  # the draft layer of the model's manifest
    why_no_model: str = ""  # why that cannot draft by itself; empty where it is a complete small model


def approaches_here(machinery: Machinery) -> tuple[list[Approach], dict[str, str]]:
    """What can be tried, and by title why the rest cannot: every approach is in one of the two."""
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
        loaded = str(machinery.small_path or model)  # a drafter knows names of the user's own store only
        if importlib.util.find_spec(package) is None:
            missing[title] = f"it is not installed: {remedy}"
        elif not model:
            missing[title] = "no small model is named: --small MODEL"
        else:
            drafters = Drafters((name,), {name: {**table, "model": loaded}})
            yield _ours(machinery, title, f"{model} drafts", drafters)


def _stocks(machinery: Machinery, missing: dict[str, str]) -> Iterator[Approach]:
    server = machinery.server
    if server is None:
        missing["stock's own modes"] = NO_SERVER
        return
    for mode in (mode for mode in machinery.server_modes if mode.startswith("ngram")):
        yield _stock(server, f"stock {mode}", "--spec-type", mode)
    if machinery.small_path is not None:
        yield _stock(server, "stock with a small model", "--model-draft", str(machinery.small_path))


def _assistant(machinery: Machinery, missing: dict[str, str]) -> Iterator[Approach]:
    """What the model brings to draft with: a complete small model, or layers that need the model's own activations."""
    if not machinery.audit.bundles_draft:
        missing[ASSISTANT] = "the model bundles none"
    elif machinery.assistant is not None and not machinery.why_no_model:
        yield from _complete_assistant(machinery, machinery.assistant, missing)
    else:
        yield from _assistant_by_activations(machinery, missing)


def _complete_assistant(machinery: Machinery, file: Path, missing: dict[str, str]) -> Iterator[Approach]:
    """As under Ollama, where it drafts as the drafter `llama`; and in stock's server."""
    (package, remedy), mine, theirs = SMALL_MODELS["llama"], f"{ASSISTANT} by llama", f"stock with {ASSISTANT}"
    if importlib.util.find_spec(package) is None:
        missing[mine] = f"it is not installed: {remedy}"
    else:
        table = {**_table(machinery, "llama")["llama"], "model": str(file)}
        yield _ours(machinery, mine, "the manifest's draft layer drafts", Drafters(("llama",), {"llama": table}))
    if machinery.server is None:
        missing[theirs] = NO_SERVER
    else:
        yield _stock(machinery.server, theirs, "--model-draft", str(file))


def _assistant_by_activations(machinery: Machinery, missing: dict[str, str]) -> Iterator[Approach]:
    """Only stock's server hands them over."""
    why = machinery.why_no_model or "its draft layers need the model's activations"
    mode = next((mode for mode in machinery.server_modes if "mtp" in mode), None)
    if machinery.server is None:
        missing[ASSISTANT] = f"{why}, which a stock server hands over: --llama-server PATH"
    elif mode is None:
        missing[ASSISTANT] = f"{why}, and {machinery.server} has no mode for that: --llama-server PATH"
    else:
        file = ("--model-draft", str(machinery.assistant)) if machinery.assistant else ()
        yield _stock(machinery.server, ASSISTANT, "--spec-type", mode, *file)


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
