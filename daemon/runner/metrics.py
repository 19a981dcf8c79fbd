"""Counters for `/metrics`: llama-server's names where it has them, `pilotfish_*` for what only we count."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from pilotfish.daemon.control.metric_families import families
from pilotfish.daemon.core.generation import Outcome
from pilotfish.daemon.core.measures import Measures
from pilotfish.daemon.runner.conversation_memory import remembered_by
from pilotfish.daemon.runner.engine_thread import Generates
from pilotfish.hooks.types import ConversationTotals


class Metrics(Collector):
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
        self._registry = CollectorRegistry()
        self._registry.register(self)

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

    def render(self) -> bytes:
        """The text of a scrape; averages cover the time since the last one."""
        text = generate_latest(self._registry)
        self._window.clear()
        return text

    def collect(self) -> Iterator[Metric]:
        """For prometheus-client."""
        for key, name, text in _COUNTERS:
            yield CounterMetricFamily(name, text, value=self._sums[key])
        for key, name, text in _CONVERSATION_COUNTERS:
            yield CounterMetricFamily(name, text, value=getattr(self.remembered, key))
        for name, text, value in self._gauges():
            yield GaugeMetricFamily(name, text, value=value)
        answers = CounterMetricFamily("pilotfish_answers", "Finished answers by parity level", labels=["parity"])
        for parity, count in self._by_parity.items():
            answers.add_metric([parity], count)
        yield answers
        yield from families((), [((), self.measures)])

    def _gauges(self) -> Iterator[tuple[str, str, float]]:
        yield "llamacpp:n_tokens_max", "Longest sequence so far, prompt and answer, in tokens", self._longest
        yield "llamacpp:prompt_tokens_seconds", "Average prompt throughput in tokens/s", self._rate("prompt")
        yield "llamacpp:predicted_tokens_seconds", "Average generation throughput in tokens/s", self._rate("predicted")
        yield "llamacpp:requests_processing", "Requests being answered", self.processing
        yield "llamacpp:requests_deferred", "Requests waiting for a slot", self.deferred
        for key, name, text in _CONVERSATION_GAUGES:
            yield name, text, getattr(self.remembered, key)

    def _rate(self, what: str) -> float:
        seconds = self._window[f"{what}_seconds"]
        return self._window[what] / seconds if seconds > 0 else 0.0


# prometheus-client appends _total to a counter's name.
_COUNTERS = (
    ("prompt", "llamacpp:prompt_tokens", "Prompt tokens processed, without cached ones"),
    ("cached", "llamacpp:prompt_tokens_cached", "Prompt tokens reused from the cache"),
    ("prompt_seconds", "llamacpp:prompt_seconds", "Time spent on prompts"),
    ("predicted", "llamacpp:tokens_predicted", "Tokens generated"),
    ("predicted_seconds", "llamacpp:tokens_predicted_seconds", "Time spent generating"),
    ("rounds", "llamacpp:n_decode", "Forward passes after the prompt"),
    ("drafted", "llamacpp:spec_decode_num_draft_tokens", "Tokens drafted and verified"),
    ("accepted", "llamacpp:spec_decode_num_accepted_tokens", "Drafted tokens that the target accepted"),
    ("rounds", "pilotfish_rounds", "Rounds: plain steps and verified proposals"),
    ("drafted", "pilotfish_drafted_tokens", "Tokens drafted and verified"),
    ("accepted", "pilotfish_accepted_tokens", "Drafted tokens that the target accepted"),
    ("dropped", "pilotfish_dropped_drafters", "Drafters dropped in the middle of a request"),
)
_CONVERSATION_COUNTERS = (
    ("hits", "pilotfish_conversation_hits", "Times a remembered conversation was written back into the slot"),
    ("forgotten", "pilotfish_conversations_forgotten", "Conversations given up for newer ones or for want of memory"),
    ("refused", "pilotfish_conversations_refused", "Conversations larger than the room for them"),
    ("failed", "pilotfish_conversations_failed", "Conversations that could not be read out or written back"),
    ("disk_hits", "pilotfish_conversation_disk_hits", "Hits that came from a file"),
    ("disk_failed", "pilotfish_conversations_disk_failed", "Conversations that could not be written to disk or used"),
)
_CONVERSATION_GAUGES = (
    ("entries", "pilotfish_conversations", "Conversations kept in host memory beside the slot"),
    ("bytes", "pilotfish_conversation_bytes", "Host memory that they take"),
    ("room", "pilotfish_conversation_bytes_limit", "Host memory that they may take"),
    ("disk_entries", "pilotfish_conversations_on_disk", "Conversations of this model kept on disk"),
    ("disk_bytes", "pilotfish_conversation_disk_bytes", "Disk space that they take"),
    ("disk_room", "pilotfish_conversation_disk_bytes_limit", "Disk space that all models' conversations may take"),
)
