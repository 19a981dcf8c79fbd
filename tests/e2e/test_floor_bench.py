"""`pilotfish bench --floor` in its short form: what is answered, and how much, never how fast."""

from __future__ import annotations

import asyncio

import pytest

from pilotfish.daemon.lab.floor_bench import FloorBench
from pilotfish.daemon.lab.floor_servers import Ollamas
from pilotfish.daemon.lab.floor_situations import FloorSizes, situations
from tests.e2e.ollama_server import SAME_KERNELS
from tests.fakes.state import SHARED
from tests.manifests.builders import smollm2_path as packaged_smollm2

pytestmark = [pytest.mark.ollama, pytest.mark.model, pytest.mark.timeout(600)]

SHORT = FloorSizes(
    prompts=(30, 60), chats=((2, 40), (3, 20)), answer=8, long_prompt=200, context=1024, short_context=256
)


def test_in_every_situation_the_overlaid_ollama_answers_as_much_as_stock(ollama_binary, overlay, folder):
    place = folder / "floor-bench"
    place.mkdir()
    ollamas = Ollamas(ollama_binary, overlay, "under test")
    bench = FloorBench(ollamas, packaged_smollm2(), 1, place, SHORT, SAME_KERNELS, SHARED)
    lines = asyncio.run(bench.run())

    assert bench.why_stock() == ""
    assert [line.name for line in lines] == [situation.name for situation in situations(SHORT)]
    assert {line.name: line.failures for line in lines if not line.answered} == {}
    assert [line.name for line in lines if not line.equal_counts] == []
