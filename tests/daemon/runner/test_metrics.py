"""`/metrics` of a runner: what its generator counts stands beside what llama-server has."""

from __future__ import annotations

from dataclasses import dataclass

from pilotfish.daemon.core.measures import Measures, Meter
from pilotfish.daemon.lab.fakes.fake_engine import FakeEngine
from pilotfish.daemon.runner.metrics import Metrics
from pilotfish.daemon.runner.metrics_text import text_of
from tests.daemon.core.asking import request
from tests.fakes.session import answer


@dataclass
class Counting:
    """All of a generator that metrics look at."""

    engine: FakeEngine
    measures: Measures


def test_histograms_come_without_a_model_and_with_llama_servers_names_beside_them():
    meter, engine, metrics = Meter(), FakeEngine(), Metrics()
    meter.answer(answer(engine, request(5), meter=meter).outcome, 0.25)
    metrics.look_at(Counting(engine, meter.taken()))
    lines = text_of(metrics).decode().splitlines()
    assert 'pilotfish_round_seconds_count{kind="plain"} 5.0' in lines
    assert "pilotfish_first_token_seconds_count 1.0" in lines
    assert 'pilotfish_accepted_length_tokens_bucket{le="+Inf"} 0.0' in lines
    assert 'pilotfish_tokens_total{kind="plain"} 5.0' in lines
    assert "pilotfish_saved_seconds_total 0.25" in lines
    assert "llamacpp:tokens_predicted_total 0.0" in lines


def test_a_generator_that_counts_nothing_has_zeros():
    metrics = Metrics()
    metrics.look_at(type("Silent", (), {"engine": FakeEngine()})())
    assert "pilotfish_first_token_seconds_count 0.0" in text_of(metrics).decode().splitlines()
