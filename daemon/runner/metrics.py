"""What is counted of a runner's answers, for `/metrics`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from pilotfish.daemon.core.generation import Outcome
from pilotfish.daemon.core.measures import Measures
from pilotfish.daemon.runner.conversation_memory import remembered_by
from pilotfish.daemon.runner.engine_thread import Generates
from pilotfish.hooks.types import ConversationTotals


class Metrics:
    """Sums over all answers of this process. Touched by the event loop only."""

    def __init__(self) -> None:
        self._sums: Counter[str] = Counter()
        self._by_parity: Counter[str] = Counter()
        self._longest = 0
        self._window: Counter[str] = Counter()  # since the last scrape, for the averages
        self.processing = 0
        self.deferred = 0
        self.remembered = ConversationTotals()
        self.measures = Measures()

    def count(self, outcome: Outcome, prompt_tokens: int) -> None:
        """Add a finished answer."""
        timings, report = outcome.timings, outcome.report
        added = Counter(
            {
                "prompt": timings.prompt_n,
                "cached": timings.cache_n,
                "prompt_seconds": timings.prompt_ms / 1000,
                "predicted": timings.predicted_n,
                "predicted_seconds": timings.predicted_ms / 1000,
                "rounds": report.rounds,
                "drafted": report.drafted,
                "accepted": report.accepted,
                "dropped": len(report.dropped),
            }
        )
        self._sums.update(added)
        self._window.update(added)
        self._by_parity[outcome.parity] += 1
        self._longest = max(self._longest, prompt_tokens + timings.predicted_n)

    def look_at(self, generator: Generates[Any]) -> None:
        """Take over what the generator counts itself; a test's own may count nothing."""
        self.remembered = remembered_by(generator.engine)
        self.measures = getattr(generator, "measures", Measures())

    def scraped(self) -> None:
        """Averages cover the time from now on."""
        self._window.clear()

    @property
    def sums(self) -> Mapping[str, float]:
        """What was counted since the process began, by the keys of `metrics_text`."""
        return self._sums

    @property
    def answers(self) -> Mapping[str, int]:
        """Finished answers by parity level."""
        return self._by_parity

    def gauges(self) -> Iterator[tuple[str, str, float]]:
        """Name, text and value of what goes up and down."""
        yield "llamacpp:n_tokens_max", "Longest sequence so far, prompt and answer, in tokens", self._longest
        yield "llamacpp:prompt_tokens_seconds", "Average prompt throughput in tokens/s", self._rate("prompt")
        yield "llamacpp:predicted_tokens_seconds", "Average generation throughput in tokens/s", self._rate("predicted")
        yield "llamacpp:requests_processing", "Requests being answered", self.processing
        yield "llamacpp:requests_deferred", "Requests waiting for a slot", self.deferred

    def _rate(self, what: str) -> float:
        seconds = self._window[f"{what}_seconds"]
        return self._window[what] / seconds if seconds > 0 else 0.0
