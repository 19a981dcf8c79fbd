"""Which drafters were promoted, and for what: a model, a drafter with its settings, a lane on an engine's build.

`pilotfish validate` writes them, and takes one back that fails. With `[speculation] require_promotion` nothing else
drafts. A promotion is good for exactly what was validated: other weights, another build of the engine, other widths or
another drafter table are another triple. One file for each, under its hash, in the state folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pilotfish.daemon.config.types import Drafters
from pilotfish.hooks.types import EnginePin, Lane, TargetPin
from pilotfish.manifests.remembered import write_atomically

FOLDER = "promotions"
FORMAT = 1


@dataclass(frozen=True, slots=True)
class PromotionSubject:
    """What a drafter is promoted for."""

    weights: tuple[str, ...]
    engine: str  # name and fingerprint
    lane: str  # its setting, widths and reach; no words of it

    @classmethod
    def of(cls, pin: TargetPin, engine: EnginePin, lane: Lane) -> PromotionSubject:
        """A loaded model."""
        decides = [asdict(lane.setting), lane.widths, lane.prefill_block, lane.exact_cache, lane.max_context]
        weights = tuple(weight.digest for weight in pin.weights)
        return cls(weights, f"{engine.name} {engine.fingerprint}", json.dumps(decides, sort_keys=True))

    def key(self, drafter: str, table: Mapping[str, Any]) -> str:
        """The name of a triple: 32 hex digits."""
        decides = json.dumps([FORMAT, asdict(self), drafter, table], sort_keys=True, default=str)
        return hashlib.sha256(decides.encode()).hexdigest()[:32]


class Promotions:
    """Those under `state_dir`."""

    def __init__(self, state_dir: Path) -> None:
        self.folder = state_dir / FOLDER

    def promote(self, subject: PromotionSubject, drafter: str, table: Mapping[str, Any], about: str) -> None:
        """Write it down; `about` says for a person what it rests on. Raises OSError."""
        said = {"format": FORMAT, **asdict(subject), "drafter": drafter, "table": dict(table), "about": about}
        write_atomically(self._path(subject, drafter, table), json.dumps(said, indent=1, default=str).encode())

    def withdraw(self, subject: PromotionSubject, drafter: str, table: Mapping[str, Any]) -> bool:
        """Take it back; whether there was one."""
        with contextlib.suppress(FileNotFoundError):
            self._path(subject, drafter, table).unlink()
            return True
        return False

    def among(self, subject: PromotionSubject, drafters: Drafters) -> tuple[str, ...]:
        """Those of the config's drafters that are promoted for `subject`, in their order."""
        tables = drafters.tables
        return tuple(n for n in drafters.order if self._path(subject, n, tables.get(n, {})).is_file())

    def _path(self, subject: PromotionSubject, drafter: str, table: Mapping[str, Any]) -> Path:
        return self.folder / f"{subject.key(drafter, table)}.json"
