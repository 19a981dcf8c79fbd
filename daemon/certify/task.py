"""What a certification is asked for, and what it is handed to do it with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pilotfish.daemon.certify.certificate import Identity
from pilotfish.daemon.certify.probe_driver import Deadline, GivenIds
from pilotfish.daemon.certify.suitability import Suitability
from pilotfish.daemon.config.types import STOCK_ENGINE
from pilotfish.hooks.protocols import Probe
from pilotfish.hooks.types import EngineOptions, EngineSetting

OpenProbe = Callable[[EngineSetting, Deadline], Probe]
Progress = Callable[[str], None]


def silent(what: str) -> None:
    """A `Progress` that tells nobody."""


@dataclass(frozen=True, slots=True)
class CertificationTask:
    """What to certify. `text` is natural text to compare rows on, besides random ids; `bos` is what the model's
    tokenizer puts before a text, if anything. `prompts_apart`: long prompts are read as fast as the engine can.
    `open_part` opens what has a part of the model's blocks, one of every kind: `part` says so."""

    identity: Identity
    model: str
    options: EngineOptions
    engines: tuple[str, ...] = (STOCK_ENGINE,)  # the registry names of the verifiers, stock's first
    text: str = ""
    bos: int | None = None
    prompts_apart: bool = True
    keep_stock: bool = True  # memory has room for the model twice, so that costs can be taken in turns
    known: Suitability | None = None
    architecture: str = ""
    quantization: str = ""
    size: int = 0  # bytes of the weights
    open_part: OpenProbe | None = None
    part: str = ""
    regressions: tuple[GivenIds, ...] = ()  # after whose prefixes every width of the lane is compared, too
