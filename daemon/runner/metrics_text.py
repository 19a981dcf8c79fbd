"""The text of a scrape: llama-server's names where it has them, `pilotfish_*` for what only we count."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from pilotfish.daemon.control.metric_families import CONTENT_TYPE, families
from pilotfish.daemon.runner.metrics import Metrics

__all__ = ["CONTENT_TYPE", "text_of"]


def text_of(metrics: Metrics) -> bytes:
    """In Prometheus's format."""
    registry = CollectorRegistry()
    registry.register(_Counted(metrics))
    return generate_latest(registry)


class _Counted(Collector):
    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        """For prometheus-client."""
        metrics = self._metrics
        for key, name, text in _COUNTERS:
            yield CounterMetricFamily(name, text, value=metrics.sums.get(key, 0))
        for key, name, text in _CONVERSATION_COUNTERS:
            yield CounterMetricFamily(name, text, value=getattr(metrics.remembered, key))
        for name, text, value in metrics.gauges():
            yield GaugeMetricFamily(name, text, value=value)
        for key, name, text in _CONVERSATION_GAUGES:
            yield GaugeMetricFamily(name, text, value=getattr(metrics.remembered, key))
        answers = CounterMetricFamily("pilotfish_answers", "Finished answers by parity level", labels=["parity"])
        for parity, count in metrics.answers.items():
            answers.add_metric([parity], count)
        yield answers
        yield from families((), [((), metrics.measures)])


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
