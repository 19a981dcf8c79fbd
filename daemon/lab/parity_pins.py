"""What a comparison holds for, so that one that was broken off can go on: weights, engine, settings and the question.

A line of an earlier run counts as compared only where all of it is the same: other weights, another build of the engine
or of pilotfish, another lane, number of threads or tokens, another prompt, sampling or drafter are another comparison.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import Field, asdict, dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from pilotfish import __version__
from pilotfish.daemon.lab.parity_subject import Subject

_LISTED = 8  # digests in a line


@dataclass(frozen=True, slots=True)
class Pins:
    """Of one comparison. `settings` is a digest of everything that decides about it, the other two included."""

    weights: str
    engine: str
    settings: str


class Pinned(Protocol):
    """A result, as a dataclass, that carries its pins."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    @property
    def pins(self) -> Pins: ...


P = TypeVar("P", bound=Pinned)


def pins_of(subject: Subject, **question: Any) -> Pins:
    """The pins of what is asked of `subject`; `question` is JSON-ready."""
    weights = _weights([weight.digest for weight in subject.pin.weights])
    engine = f"{subject.engine.engine.name} {subject.engine.engine.version} {subject.engine.engine.fingerprint}"
    options = {name: value for name, value in asdict(subject.options).items() if name != "state_dir"}
    environment = sorted((name, value) for name, value in os.environ.items() if name.startswith("GGML_"))
    decides = [__version__, weights, engine, asdict(subject.engine.lane), options, environment, question]
    digest = hashlib.sha256(json.dumps(decides, sort_keys=True, default=str).encode()).hexdigest()
    return Pins(weights, engine, digest)


def _weights(digests: Sequence[str]) -> str:
    """The digests, or one over all of them: an MLX model has a blob for each tensor, and every line names them."""
    listed = ", ".join(digests)
    if len(digests) <= _LISTED:
        return listed
    return f"{len(digests)} files, together sha256:{hashlib.sha256(listed.encode()).hexdigest()}"


class Compared(Generic[P]):
    """Results of earlier runs, found again by their pins. Empty by default."""

    def __init__(self, results: Iterable[P] = ()) -> None:
        self._results = {result.pins: result for result in results}

    def get(self, pins: Pins) -> P | None:
        """What was found for these pins; None when it has yet to be compared."""
        return self._results.get(pins)

    def __contains__(self, result: object) -> bool:
        pins = getattr(result, "pins", None)
        return pins is not None and self._results.get(pins) is result


def read_results(path: Path, kind: type[P]) -> Iterator[P]:
    """The lines of a log that are results of this `kind`; others, and one that was broken off, are passed over."""
    names = {field.name for field in fields(kind)}
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            document = json.loads(line)
            values = {name: document[name] for name in names}
            values["pins"] = Pins(**values["pins"])
        except (ValueError, KeyError, TypeError):
            continue
        yield kind(**values)
