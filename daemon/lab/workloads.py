"""The prompts that demo, parity runs and benchmarks ask."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from pilotfish.hooks.errors import UsageError
from pilotfish.hooks.types import SamplingParams

KINDS = ("copy", "open")  # the answer repeats much of the prompt, or it does not


@dataclass(frozen=True, slots=True)
class Workload:
    """One prompt, its kind and the system message it is asked with."""

    name: str
    kind: str
    prompt: str
    system: str


@dataclass(frozen=True, slots=True)
class Mode:
    """One way to sample; `options` are Ollama's."""

    name: str
    options: dict[str, Any]

    @property
    def sampling(self) -> SamplingParams:
        """As Ollama sends it with these options."""
        return SamplingParams(**self.options, top_p=0.9, min_p=0.0)


MODES = (
    Mode("greedy", {"temperature": 0}),
    Mode("seeded", {"temperature": 0.8, "seed": 42, "repeat_penalty": 1.1}),
)


def among(things: Sequence[Any], names: Sequence[str], option: str) -> list[Any]:
    """The things of these names, all of them where none is named. Raises UsageError naming `option` and the choices."""
    known = {thing.name: thing for thing in things}
    for name in names:
        if name not in known:
            raise UsageError(f"{option} {name}: unknown; there are {', '.join(known)}")
    return [thing for thing in things if not names or thing.name in names]


def load_workloads(path: Path | None = None) -> list[Workload]:
    """The workloads of `path`, or the ones that come with pilotfish. Raises UsageError naming file and entry."""
    source = path or resources.files("pilotfish.daemon.lab").joinpath("workloads.json")
    try:
        document = json.loads(source.read_text(encoding="utf-8"))
        system = str(document.get("system", ""))
        return [_workload(entry, system) for entry in document["workloads"]]
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        shape = '{"system", "workloads": [{"name", "kind", "prompt"}, ...]}'
        raise UsageError(f"{path}: not a workload file ({error!r}); it needs {shape}") from error


def _workload(entry: dict[str, str], system: str) -> Workload:
    kind = entry.get("kind", "open")
    if kind not in KINDS:
        raise ValueError(f"kind of {entry['name']!r} is {kind!r}, not one of {', '.join(KINDS)}")
    return Workload(entry["name"], kind, entry["prompt"], system)
