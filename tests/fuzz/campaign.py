"""Runs a target on inputs made from a seed, and makes what it finds small."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Protocol

SECONDS = 5.0  # of the processor, for one input
WARM_UP = 0.25  # share of a campaign after which memory and descriptors may not grow any more
GROWTH = 48 << 20  # bytes
DESCRIPTORS = 16
KINDS = 12  # different findings after which a campaign ends
SHRINKING = 300  # tries to make a finding smaller


class Fault(Exception):
    """A broken promise. `kind` is the same for all inputs that break it in the same way; a `slow` one is not tried
    again and again to make its input small."""

    def __init__(self, kind: str, details: str = "", *, slow: bool = False) -> None:
        super().__init__(f"{kind}\n{details}" if details else kind)
        self.kind = kind
        self.slow = slow


@dataclass(frozen=True, slots=True)
class Case:
    """One input: what it is given to, and its bytes. `whole` says that `data` is all that is sent, head included."""

    to: str
    data: bytes
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Usage:
    """What a target holds: bytes of memory and open descriptors."""

    memory: int
    descriptors: int


class Target(Protocol):
    """Something that takes inputs."""

    name: str

    def make(self, random: Random) -> Case:
        """A broken input."""
        ...

    def take(self, case: Case) -> None:
        """Give it the input. Raises Fault."""
        ...

    def probe(self) -> None:
        """A sound input, which must be answered. Raises Fault."""
        ...

    def usage(self) -> Usage:
        """What it holds now."""
        ...


@dataclass(frozen=True, slots=True)
class Finding:
    """A broken promise with the input that shows it, made small."""

    seed: str
    case: Case
    fault: Fault

    def __str__(self) -> str:
        shown = repr(self.case.data if len(self.case.data) <= 2000 else self.case.data[:2000] + b" ...")
        return f"seed {shlex.quote(self.seed)}, {self.case.to}: {self.fault}\n  {shown}"


@dataclass(slots=True)
class Result:
    """What a campaign found. `seen` counts its findings by kind, those included that are shown once."""

    target: str
    inputs: int = 0
    findings: list[Finding] = field(default_factory=list)
    seen: Counter[str] = field(default_factory=Counter)


def run(target: Target, count: int, seed: str, tell: Callable[[Finding], None] = lambda finding: None) -> Result:
    """Give `target` that many inputs and look at what is left of it. `tell` hears of each finding at once."""
    result = Result(target.name)
    warm: Usage | None = None
    for index in range(count):
        if index >= count * WARM_UP and warm is None:
            warm = target.usage()
        name = f"{seed}/{target.name}/{index}"
        known = len(result.findings)
        _one(target, target.make(Random(name)), name, result)
        result.inputs += 1
        for finding in result.findings[known:]:
            tell(finding)
        if len(result.findings) >= KINDS:
            break
    _afterwards(target, warm, f"{seed}/{target.name}", result)
    return result


def again(target: Target, seed: str) -> Result:
    """One input, by its seed."""
    result = Result(target.name, 1)
    _one(target, target.make(Random(seed)), seed, result)
    return result


def _one(target: Target, case: Case, name: str, result: Result) -> None:
    fault = _fault(target, case)
    if fault is None:
        return
    result.seen[fault.kind] += 1
    if result.seen[fault.kind] == 1:
        result.findings.append(Finding(name, *smaller(case, fault, lambda tried: _fault(target, tried))))


def _afterwards(target: Target, warm: Usage | None, name: str, result: Result) -> None:
    try:
        target.probe()
    except Fault as fault:
        result.findings.append(Finding(name, Case("afterwards", b""), fault))
        return
    now = target.usage()
    if warm and (now.memory - warm.memory > GROWTH or now.descriptors - warm.descriptors > DESCRIPTORS):
        result.findings.append(Finding(name, Case("all of them", b""), Fault(f"it grew from {warm} to {now}")))


def _fault(target: Target, case: Case) -> Fault | None:
    try:
        target.take(case)
    except Fault as fault:
        return fault
    return None


def smaller(case: Case, fault: Fault, try_: Callable[[Case], Fault | None]) -> tuple[Case, Fault]:
    """The smallest case found that has a fault of the same kind."""
    tries = 0 if fault.slow else SHRINKING
    progress = True
    while progress:
        progress = False
        for data in _smaller(case.data):
            if (tries := tries - 1) < 0:
                return case, fault
            found = try_(replace(case, data=data))
            if found is not None and found.kind == fault.kind:
                case, fault, progress = replace(case, data=data), found, True
                break
    return case, fault


def _smaller(data: bytes) -> Iterator[bytes]:
    try:
        value = json.loads(data)
        texts = [json.dumps(less).encode() for less in _less(value)]
    except (ValueError, RecursionError):
        texts = []
    yield from (text for text in texts if len(text) < len(data))
    size = len(data) // 2
    while size >= 1 and not texts:
        for at in range(0, len(data), size):
            yield data[:at] + data[at + size :]
        size //= 2 if len(data) < 4096 else 8


def _less(value: Any) -> Iterator[Any]:
    """`value` without one of its parts, or with half of a text or a list."""
    if isinstance(value, dict):
        for key, inner in value.items():
            rest = {name: other for name, other in value.items() if name != key}
            yield rest
            yield from ({**value, key: less} for less in _less(inner))
    elif isinstance(value, list) and value:
        half = len(value) // 2
        yield from (value[:half], value[half:]) if half else ([],)
        if len(value) < 20:
            for at, inner in enumerate(value):
                yield from ([*value[:at], less, *value[at + 1 :]] for less in _less(inner))
    elif isinstance(value, str) and len(value) > 1:
        yield value[: len(value) // 2]
