"""Everything the config file can say, as types that cannot be wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pilotfish.hooks.errors import InvalidModelName
from pilotfish.hooks.types import Parity
from pilotfish.manifests.names import ModelName

BUNDLED = "bundled"
LIBLLAMA = (BUNDLED, "ollama")  # or a folder
PROMPTS = ("fast", "lane")
TEMPLATES = ("ollama", "own", "upstream")
STOCK_ENGINE = "llama"  # the verifier that computes with the library of plain Ollama
ENGINES = {STOCK_ENGINE: "pip install 'pilotfish[llama]'", "ik": "pip install 'pilotfish[ik]'"}  # and how to get them
TENSORS, TENSOR_ENGINE = "safetensors", "mlx"  # a format that one verifier alone computes, whatever is chosen else
REMEDIES = {**ENGINES, TENSOR_ENGINE: "pip install 'pilotfish[mlx]'"}
AUTO = "auto"  # of these the one that is measured to be the fastest for a model
CHOICES = (AUTO, *ENGINES)
KERNELS = (AUTO, "off")
MAX_WIDTH = 64


@dataclass(frozen=True, slots=True)
class Speculation:
    """`[speculation]`"""

    enabled: bool = True
    parity: Parity = Parity.LANE  # the least that must be promised about an answer's ids for drafts to be used
    max_loss: float = 0.01  # share of the plain time that may be lost by trying
    max_width: int = 16  # tokens in one forward: the pending one and the proposals
    deadline_ms: int = 250  # how long a drafter that is not inline may take to propose
    require_promotion: bool = False  # only drafters that `pilotfish validate` promoted for the model and its setting


@dataclass(frozen=True, slots=True)
class Drafters:
    """`[drafters]`: the order of preference; `[drafters.<name>]` tables are handed to the drafter as they are."""

    order: tuple[str, ...] = ("suffix",)
    tables: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Promotion:
    """`[promotion]`: what a drafter must reach in `pilotfish validate`, beside exactness; shares of what plain is."""

    min_gain: float = 0.15  # of the median rate, from the request to the end
    max_first_token_loss: float = 0.10  # of the p95 time to the first token


@dataclass(frozen=True, slots=True)
class Verifiers:
    """`[verifiers.<name>]`: tables that are handed to the verifier as they are."""

    tables: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """`[models."name:tag"]`: what differs for one model; None leaves the general setting in force."""

    enabled: bool | None = None
    drafters: tuple[str, ...] | None = None
    parity: Parity | None = None
    max_width: int | None = None
    rpc: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Plugins:
    """`[plugins]`: folders whose `.py` files are loaded as plugins."""

    folders: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class Engine:
    """`[engine]`: which verifier computes, whose libllama, what runs beside a runner. A running one follows the idle
    times; the rest waits for the next load."""

    choice: str = AUTO
    libllama: str = BUNDLED  # or "ollama": the one of the user's Ollama; or the absolute path of a folder
    kernels: str = "auto"  # or "off": whether batch-invariant kernels are used where they were built
    sidecar_idle_s: int = 120  # how long a stock server that was started beside a runner may idle
    certify_idle_s: int = 60  # how long nobody must have asked for anything before a model is certified
    certify_budget_s: int = 240  # how long that may take; 0: only `pilotfish certify` certifies
    prompts: str = "fast"  # or "lane": every prompt is read as answers are decoded
    cache_ram_share: float = 0.5  # of what memory is free: the most that conversations outside the slot may take
    cache_disk_mib: int = 0  # MiB that they may take on disk, where they outlive reloads; 0: none are kept there
    rpc: tuple[str, ...] = ()  # far ends, as host:port, that compute layers, too
    tensor_split: tuple[float, ...] = ()  # shares of the layers by device, far ends first; empty: by free memory
    rpc_deadline_s: int = 60  # how long a far end may be silent while something is computed
    rpc_fallback: bool = False  # whether models load without far ends where these cannot be had


@dataclass(frozen=True, slots=True)
class Daemon:
    """`[daemon]`: the control socket; None means the platform's runtime folder."""

    socket: Path | None = None


@dataclass(frozen=True, slots=True)
class Front:
    """`[front]`: where `pilotfish serve` listens, in any form that OLLAMA_HOST may have, and what stands behind it."""

    host: str = "127.0.0.1:11435"
    upstream: str = ""  # the Ollama that answers what is not computed here; empty: nobody does
    serve_gguf: bool = False  # with an upstream: whether GGUF models are computed here, too
    templates: str = "ollama"  # with an upstream: who renders prompts


@dataclass(frozen=True, slots=True)
class Page:
    """`[page]`: what a browser is shown, at `host` by a daemon, at its own address by `pilotfish serve`."""

    enabled: bool = True
    host: str = "127.0.0.1:11437"
    history: bool = True  # the account of thirty days is kept in the state folder; no prompt and no answer is


@dataclass(frozen=True, slots=True)
class Config:
    """Everything the config file can say. `path` is where it came from, None for the defaults."""

    speculation: Speculation = field(default_factory=Speculation)
    drafters: Drafters = field(default_factory=Drafters)
    promotion: Promotion = field(default_factory=Promotion)
    verifiers: Verifiers = field(default_factory=Verifiers)
    models: Mapping[str, ModelSettings] = field(default_factory=dict)
    plugins: Plugins = field(default_factory=Plugins)
    engine: Engine = field(default_factory=Engine)
    daemon: Daemon = field(default_factory=Daemon)
    front: Front = field(default_factory=Front)
    page: Page = field(default_factory=Page)
    path: Path | None = None

    @property
    def engines(self) -> tuple[str, ...]:
        """The verifiers that may compute, by registry name: stock's ids come from stock's own library only, and so
        does the way to far ends."""
        return engines_of(STOCK_ENGINE if self.speculation.parity == "stock" or self.engine.rpc else self.engine.choice)

    def engines_for(self, model_format: str) -> tuple[str, ...]:
        """Those of them that compute models of this format, as a pin has it."""
        return (TENSOR_ENGINE,) if model_format == TENSORS else self.engines

    @property
    def why_not_chosen(self) -> str:
        """Why another engine than the chosen one computes, for a person; empty when the chosen one does."""
        if self.engine.choice in (AUTO, *self.engines):
            return ""
        if self.engine.rpc:
            return f"only {STOCK_ENGINE} computes on far ends"
        return f'parity = "stock" keeps to {STOCK_ENGINE}: {self.engine.choice} gives the ids of other kernels'

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
        drafters = replace(self.drafters, order=order)
        engine = self.engine if mine.rpc is None else replace(self.engine, rpc=mine.rpc)
        return replace(self, speculation=speculation, drafters=drafters, engine=engine, models={})

    @property
    def without_far_ends(self) -> Config:
        """The same with all computed on this machine."""
        models = {name: replace(settings, rpc=None) for name, settings in self.models.items()}
        return replace(self, engine=replace(self.engine, rpc=()), models=models)

    def for_models(self, names: Sequence[str]) -> Config:
        """What is in force for models that share their weights, and so a runner: of each setting the strictest.

        The drafters are those of the first; without names, the general settings.
        """
        each = [self.for_model(name) for name in names] or [replace(self, models={})]
        speculation = replace(
            each[0].speculation,
            enabled=all(config.speculation.enabled for config in each),
            parity=min((config.speculation.parity for config in each), key=list(Parity).index),
            max_width=min(config.speculation.max_width for config in each),
        )
        return replace(each[0], speculation=speculation)


def engines_of(choice: str) -> tuple[str, ...]:
    """The verifiers that a choice leaves, by registry name, stock's engine first."""
    return tuple(ENGINES) if choice == AUTO else (choice,)


def model_key(models: Mapping[str, Any], name: str) -> str | None:
    """The key of `models` that means the model `name`; None when there is none."""
    try:
        wanted = ModelName.parse(name).folded
    except InvalidModelName:
        return None
    return next((key for key in models if ModelName.parse(key).folded == wanted), None)
