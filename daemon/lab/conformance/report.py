"""What came of the checks, as values to show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

PASSED, FAILED, NOT_RUN = "passed", "failed", "not run"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One check: `outcome` is `passed`, `failed` or `not run`, and `seen` says why it is not `passed`."""

    check: str
    demand: str
    outcome: str = PASSED
    seen: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """One drafter, bridge or verifier. It passed when every check that there is for it ran and found nothing."""

    kind: str  # "drafter", "bridge" or "verifier"
    name: str
    results: tuple[CheckResult, ...] = ()
    slowest: Mapping[str, float] = field(default_factory=dict)  # operation -> seconds of its slowest call
    note: str = ""  # what was left out, for a person

    @property
    def passed(self) -> bool:
        return all(result.outcome == PASSED for result in self.results)

    def to_json(self) -> dict[str, Any]:
        """The verdict as JSON-ready values; times in milliseconds."""
        return {
            "kind": self.kind,
            "name": self.name,
            "passed": self.passed,
            "checks": [
                {"name": r.check, "demand": r.demand, "outcome": r.outcome, "seen": r.seen} for r in self.results
            ],
            "slowest_ms": {operation: round(seconds * 1000, 3) for operation, seconds in self.slowest.items()},
            "note": self.note,
        }


@dataclass(frozen=True, slots=True)
class PluginReport:
    """Everything that was found in a plugin file, or the one drafter that was asked for."""

    source: str
    verdicts: tuple[Verdict, ...] = ()
    problems: tuple[str, ...] = ()  # why something could not be checked at all

    @property
    def passed(self) -> bool:
        return not self.problems and all(verdict.passed for verdict in self.verdicts)

    def to_json(self) -> dict[str, Any]:
        """The report as JSON-ready values."""
        return {
            "source": self.source,
            "passed": self.passed,
            "problems": list(self.problems),
            "plugins": [verdict.to_json() for verdict in self.verdicts],
        }
