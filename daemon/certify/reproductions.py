"""A place where two forwards were seen to part, as a file: the ids before it and the two ways of computing.

`pilotfish diagnose` reads and writes such files, `pilotfish certify --probe` compares every width there. Only `schema`,
`model`, `prefix` and `forwards` have to be given::

    {"schema": "pilotfish-reproduction/1", "model": "smollm2:135m", "prefix": [1, 9690, ...],
     "forwards": [{"width": 1}, {"width": 5, "setting": {"cache_type_k": "bf16"}}]}
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from pilotfish.daemon.certify.probe_wire import setting_from_json, setting_to_json, typed
from pilotfish.hooks.errors import UsageError
from pilotfish.hooks.types import EngineOptions, EngineSetting
from pilotfish.manifests.remembered import write_atomically

SCHEMA = "pilotfish-reproduction/1"
_MOST = 16 << 20  # bytes of a file

Ids = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ForwardShape:
    """One way to compute: so many tokens at once, in a setting."""

    setting: EngineSetting
    width: int


@dataclass(frozen=True, slots=True)
class PastRound:
    """A forward of `width` tokens, padding included, for the pending id and `proposed`; so many ids were committed."""

    width: int
    proposed: Ids
    committed: int

    def __post_init__(self) -> None:
        if not 1 <= self.committed <= 1 + len(self.proposed):
            raise ValueError(f"a round that commits {self.committed} ids after {len(self.proposed)} proposals")


@dataclass(frozen=True, slots=True)
class Reproduction:
    """`prefix` is the history; its last id is pending and leads the next forward. `following` are proposals for it.

    The first `prompt` ids were read as a prompt and the others committed in `rounds`, one behind the other. Where
    nobody knows, these are 0 and empty, as is `lane`, the widths that were allowed. `n_ctx` and what follows say how
    the model was loaded.
    """

    model: str
    prefix: Ids
    plain: ForwardShape
    other: ForwardShape
    following: Ids = ()
    prompt: int = 0
    rounds: tuple[PastRound, ...] = ()
    lane: Ids = ()
    weights: tuple[str, ...] = ()
    n_ctx: int | None = None
    threads: int | None = None
    batch_size: int = EngineOptions().batch_size
    gpu_layers: int | None = None

    def __post_init__(self) -> None:
        if not self.prefix or any(not isinstance(id, int) or id < 0 for id in self.all_ids()):
            raise ValueError("its ids are not whole numbers, or there are none")
        if not 0 <= self.prompt <= len(self.prefix):
            raise ValueError(f"a prompt of {self.prompt} of {len(self.prefix)} ids")
        if self.rounds and self.prompt + sum(round.committed for round in self.rounds) != len(self.prefix):
            raise ValueError("the prompt and what the rounds committed are not as long as the prefix")
        if min(self.plain.width, self.other.width) < 1:
            raise ValueError("a forward has one token at least")
        if min(self.batch_size, self.threads or 1) < 1:
            raise ValueError(f"a prompt block of {self.batch_size} ids on {self.threads} threads")
        if (self.gpu_layers or 0) < 0:
            raise ValueError(f"{self.gpu_layers} layers on a GPU")

    def all_ids(self) -> Ids:
        """Every id that reaches an engine."""
        return tuple(itertools.chain(self.prefix, self.following, *(round.proposed for round in self.rounds)))

    def to_json(self) -> dict[str, Any]:
        """JSON-ready values."""
        table = {name: value for name, value in asdict(self).items() if name not in ("plain", "other")}
        shapes = [{"width": one.width, "setting": setting_to_json(one.setting)} for one in (self.plain, self.other)]
        return {"schema": SCHEMA, **table, "forwards": shapes}


def write_reproduction(path: Path, found: Reproduction) -> None:
    """Write it, whole or not at all. Raises OSError."""
    write_atomically(path, (json.dumps(found.to_json()) + "\n").encode())


def read_reproduction(path: Path) -> Reproduction:
    """Raises UsageError naming the file and what is wrong with it; OSError."""
    try:
        with path.open("rb") as file:
            table = json.loads(file.read(_MOST))
        return _from_table(table)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UsageError(f"{path}: not a reproduction that this version reads ({error})") from error


def _from_table(table: Mapping[str, Any]) -> Reproduction:
    if table["schema"] != SCHEMA:
        raise ValueError(f"its schema is {table['schema']!r:.60}, this version reads {SCHEMA}")
    known = {field.name for field in fields(Reproduction)} - {"plain", "other"}
    if unknown := sorted(set(table) - known - {"schema", "forwards"}):
        raise ValueError(f"{unknown[0]!r} is no field of it")
    plain, other = map(_shape, table["forwards"])
    values = {name: _value(table[name]) for name in known & set(table)}
    rounds = tuple(typed(PastRound, {**one, "proposed": tuple(one["proposed"])}) for one in table.get("rounds", ()))
    return typed(Reproduction, {**values, "plain": plain, "other": other, "rounds": rounds})


def _shape(table: Mapping[str, Any]) -> ForwardShape:
    given = table.get("setting", {})
    setting = setting_from_json({**setting_to_json(EngineSetting()), **given})
    return typed(ForwardShape, {"setting": setting, "width": table["width"]})


def _value(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
