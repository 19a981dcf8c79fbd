"""Measures as Prometheus reads them, under the names that runner and daemon share.

`pilotfish_tokens_total` counts each token once: its kinds add up to all that was computed or reused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric

from pilotfish.daemon.core.histogram import Histogram
from pilotfish.daemon.core.measures import Measures

CONTENT_TYPE = "text/plain; version=0.0.4"

Labelled = Sequence[tuple[Sequence[str], Measures]]  # the values of the labels, and what was measured under them


def families(labels: Sequence[str], measured: Labelled) -> Iterable[Metric]:
    """Every family, with a sample for each entry of `measured`; `labels` are the names that go with the values."""
    for name, text, kinds in _COUNTERS:
        yield _counters(name, text, kinds, labels, measured)
    for name, text, shapes in _HISTOGRAMS:
        yield _histograms(name, text, shapes, labels, measured)


# Either has one entry without a kind, or one for each value of the label `kind`.
_Numbers = dict[str, Callable[[Measures], float]]
_Shapes = dict[str, Callable[[Measures], Histogram]]

# prometheus-client appends _total to a counter's name.
_COUNTERS: tuple[tuple[str, str, _Numbers], ...] = (
    (
        "pilotfish_tokens",
        "Tokens by kind: of prompts, read (prompt) or reused (cached); of answers, the model's own (plain) or "
        "drafted and right (accepted); drafted, verified and thrown away (rejected)",
        {
            "prompt": lambda measures: measures.prompt,
            "cached": lambda measures: measures.cached,
            "plain": lambda measures: measures.plain,
            "accepted": lambda measures: measures.accepted,
            "rejected": lambda measures: measures.rejected,
        },
    ),
    ("pilotfish_requests", "Answers that have ended", {"": lambda measures: measures.answers}),
    (
        "pilotfish_saved_seconds",
        "Time that speculation saved, by answers that were faster than plain decoding",
        {"": lambda measures: measures.saved},
    ),
    (
        "pilotfish_lost_seconds",
        "Time that speculation cost, by answers that were slower than plain decoding",
        {"": lambda measures: measures.lost},
    ),
    (
        "pilotfish_drafters_dropped",
        "Drafters dropped in the middle of a request",
        {"": lambda measures: measures.dropped},
    ),
)
_HISTOGRAMS: tuple[tuple[str, str, _Shapes], ...] = (
    (
        "pilotfish_round_seconds",
        "Time of a round by kind: a step of one token (plain), or a proposal verified (drafted)",
        {"plain": lambda measures: measures.plain_rounds, "drafted": lambda measures: measures.drafted_rounds},
    ),
    (
        "pilotfish_first_token_seconds",
        "Time from when a request has a slot to its first token",
        {"": lambda measures: measures.first_token},
    ),
    (
        "pilotfish_accepted_length_tokens",
        "How many tokens of a verified proposal were accepted",
        {"": lambda measures: measures.accepted_length},
    ),
)


def _counters(name: str, text: str, kinds: _Numbers, labels: Sequence[str], measured: Labelled) -> CounterMetricFamily:
    family = CounterMetricFamily(name, text, labels=_names(labels, kinds))
    for values, measures in measured:
        for kind, number in kinds.items():
            family.add_metric(_values(values, kind), number(measures))
    return family


def _histograms(
    name: str, text: str, shapes: _Shapes, labels: Sequence[str], measured: Labelled
) -> HistogramMetricFamily:
    family = HistogramMetricFamily(name, text, labels=_names(labels, shapes))
    for values, measures in measured:
        for kind, shape in shapes.items():
            histogram = shape(measures)
            family.add_metric(_values(values, kind), histogram.cumulative(), histogram.sum)
    return family


def _names(labels: Sequence[str], kinds: Iterable[str]) -> list[str]:
    return [*labels, "kind"] if any(kinds) else [*labels]


def _values(values: Sequence[str], kind: str) -> list[str]:
    return [*values, kind] if kind else [*values]
