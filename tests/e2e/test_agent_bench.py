"""`pilotfish bench --agent` in its short form: everyone answers, and drafts change nothing."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from pilotfish.daemon.lab.agent_bench import FRONT, OVERLAID, PLAIN, STOCK, AgentBench, exact
from pilotfish.daemon.lab.agent_session import MODES, load_session
from pilotfish.daemon.lab.floor_servers import Ollamas
from tests.fakes.state import SHARED
from tests.manifests.builders import smollm2_path as packaged_smollm2

pytestmark = [pytest.mark.ollama, pytest.mark.model, pytest.mark.timeout(600)]


def test_a_session_goes_through_everywhere_and_is_the_same_with_drafts(ollama_binary, overlay, folder):
    place = folder / "agent-bench"
    place.mkdir()
    session = load_session()
    short = replace(session, turns=session.turns[:2])
    ollamas = Ollamas(ollama_binary, overlay, "under test")
    bench = AgentBench(ollamas, packaged_smollm2(), short, place, MODES[1:], 1, 24, 2048, state=SHARED)
    courses = asyncio.run(bench.run())

    assert [course.contestant for course in courses] == [STOCK, OVERLAID, FRONT, PLAIN]
    assert {course.contestant: course.failure for course in courses if course.failure} == {}
    assert exact(courses)
    assert [len(course.sessions[0].replies) for course in courses] == [2, 2, 2, 2]
