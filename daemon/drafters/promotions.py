"""Which drafters were promoted, and for what: a model, a drafter with its settings, an engine's build and setting.

`pilotfish validate` writes them, and takes one back that fails. With `[speculation] require_promotion` nothing else
drafts. Other weights, another build of the engine, another setting, other far ends or another drafter table are another
promotion: what a step costs over a network says nothing of one here.

Lanes of one setting compute with the same kernels and differ in what was compared: a longer context, another number of
slots, a check at load or a certificate find other widths, or as many up to another position. So a promotion names the
widths that the drafter's rounds had while it passed, and is good in every lane of its setting that holds them.

One file for each, under its hash, in the state folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pilotfish.daemon.config.types import Drafters
from pilotfish.hooks.types import EnginePin, Lane, TargetPin
from pilotfish.manifests.remembered import write_atomically

FOLDER = "promotions"
FORMAT = 2

Widths = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PromotionSubject:
    """What a drafter is promoted for, and the `widths` of the lane in which that is asked."""

    weights: tuple[str, ...]
    engine: str  # name and fingerprint
    setting: str  # and the width of a plain step, which the drafter was compared with
    widths: Widths
    far_ends: tuple[str, ...] = ()  # that compute layers, too

    @classmethod
    def of(cls, pin: TargetPin, engine: EnginePin, lane: Lane, far_ends: tuple[str, ...] = ()) -> PromotionSubject:
        """A loaded model."""
        weights = tuple(weight.digest for weight in pin.weights)
        setting = json.dumps([asdict(lane.setting), lane.widths[0]], sort_keys=True)
        return cls(weights, f"{engine.name} {engine.fingerprint}", setting, lane.widths, far_ends)

    def key(self, drafter: str, table: Mapping[str, Any]) -> str:
        """The name of a promotion: 32 hex digits."""
        decides = [FORMAT, self.weights, self.engine, self.setting, drafter, table]
        if self.far_ends:
            decides.append(self.far_ends)
        return hashlib.sha256(json.dumps(decides, sort_keys=True, default=str).encode()).hexdigest()[:32]

    def holds(self, widths: Sequence[int]) -> bool:
        """Whether the lane has all of these widths."""
        return set(widths) <= set(self.widths)


class Promotions:
    """Those under `state_dir`."""

    def __init__(self, state_dir: Path) -> None:
        self.folder = state_dir / FOLDER

    def promote(
        self,
        subject: PromotionSubject,
        drafter: str,
        table: Mapping[str, Any],
        about: str,
        passed: Sequence[Widths],
    ) -> None:
        """Write it down; `about` says for a person what it rests on. Raises OSError.

        `passed` are the widths of its rounds, for each of its lengths that passed: a lane has to hold those of one.
        """
        said = {"format": FORMAT, **asdict(subject), "drafter": drafter, "table": dict(table), "about": about}
        said["passed"] = [sorted(widths) for widths in passed]
        write_atomically(self._path(subject, drafter, table), json.dumps(said, indent=1, default=str).encode())

    def withdraw(self, subject: PromotionSubject, drafter: str, table: Mapping[str, Any]) -> bool:
        """Take it back, whatever lane it was for; whether there was one."""
        with contextlib.suppress(FileNotFoundError):
            self._path(subject, drafter, table).unlink()
            return True
        return False

    def promoted(self, subject: PromotionSubject, drafter: str, table: Mapping[str, Any]) -> bool:
        """Whether it is, in this lane. What cannot be read promotes nothing."""
        try:
            said = json.loads(self._path(subject, drafter, table).read_bytes())
            return any(subject.holds(widths) for widths in said["passed"])
        except (OSError, ValueError, KeyError, TypeError):
            return False

    def among(self, subject: PromotionSubject, drafters: Drafters) -> tuple[str, ...]:
        """Those of the config's drafters that are promoted for `subject`, in their order."""
        return tuple(n for n in drafters.order if self.promoted(subject, n, drafters.tables.get(n, {})))

    def _path(self, subject: PromotionSubject, drafter: str, table: Mapping[str, Any]) -> Path:
        return self.folder / f"{subject.key(drafter, table)}.json"
