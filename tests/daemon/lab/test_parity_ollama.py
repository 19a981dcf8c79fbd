"""An ordinary Ollama beside the overlaid one, on servers that answer at once: what they are asked and compared by."""

from __future__ import annotations

import contextlib
import json
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from pilotfish.daemon.control import decision_log
from pilotfish.daemon.front.runner_client import RunnerClient
from pilotfish.daemon.lab import parity_ollama
from pilotfish.daemon.lab.floor_servers import OllamaReply, Ollamas
from pilotfish.daemon.lab.parity_ollama import DRAFTING, NOW_AND_THEN, PLAIN, OllamaParity
from pilotfish.daemon.lab.parity_together import FOLLOW_UP
from pilotfish.daemon.lab.workloads import MODES, Workload
from pilotfish.hooks.errors import EngineError
from tests.manifests.builders import tiny_gguf

WORKLOADS = [Workload("a", "copy", "Say it again.", ""), Workload("b", "open", "Tell a tale.", "Be brief.")]


def _read(config: str) -> dict:
    return tomllib.loads(Path(config).read_text())


class Beds:
    """What every server was asked and configured with; `says` changes a server's replies."""

    def __init__(self) -> None:
        self.asked: dict[str, list[str]] = {}
        self.configs: dict[str, dict] = {}
        self.recorded: dict[str, list[list[int]]] = {}
        self.says = lambda title, reply: reply

    @contextlib.asynccontextmanager
    async def serving(self, title, binary, models, folder, environment):
        if config := environment.get("PILOTFISH_CONFIG"):
            self.configs[title] = _read(config)
        yield _Server(self, title, folder.parent / "recording.json")


class _Server:
    def __init__(self, beds: Beds, title: str, recording: Path) -> None:
        self._beds, self.title, self._recording = beds, title, recording

    async def generate(self, model, prompt, options, *, logprobs=False):
        self._beds.asked.setdefault(self.title, []).append(prompt)
        if logprobs and self._recording.exists():
            recorded = json.loads(self._recording.read_text())["tokens"]
            self._beds.recorded.setdefault(self.title, []).append(recorded)
        text = f"answer {len(prompt)}"
        reply = OllamaReply(text, len(prompt), 2, "length", 0.0, 0.0, 0.0, ("answer ", str(len(prompt))), (-0.5, -0.25))
        return self._beds.says(self.title, reply)

    def model_port(self):
        return 1


async def tokenized(self, text, *, add_special=True):
    return [*range(len(text))]


async def explained(self):
    return {
        "lane": {"name": "a lane", "parity": "lane", "widths": [1, 2, 3]},
        "totals": {"drafted": 5, "accepted": 4},
    }


async def metrics(server):
    return "pilotfish_conversation_hits_total 3.0\n"


@pytest.fixture
def beds(monkeypatch):
    made = Beds()
    monkeypatch.setattr(parity_ollama, "serving", made.serving)
    monkeypatch.setattr(parity_ollama, "_metrics", metrics)
    monkeypatch.setattr(RunnerClient, "explain", explained)
    monkeypatch.setattr(RunnerClient, "tokenize", tokenized)
    return made


@pytest.fixture
def parity(tmp_path, monkeypatch):
    monkeypatch.setenv("PILOTFISH_STATE", str(tmp_path / "users"))
    model = tiny_gguf(tmp_path / "m.gguf")
    folder = tmp_path / "run"
    folder.mkdir()
    return OllamaParity(Ollamas(tmp_path, tmp_path, "0.33.2"), model, WORKLOADS, MODES, (0, 40), 8, folder)


async def test_every_server_is_asked_the_same_and_second_turns_come_after_all_first_ones(parity, beds):
    courses = await parity.run()
    assert [course.title for course in courses] == [PLAIN, "stock", *DRAFTING]
    first = beds.asked[PLAIN]
    assert all(asked == first for asked in beds.asked.values())
    hi, a, b, again_a, again_b = first
    assert hi == "Hi"
    assert a == "Say it again.\n\n"
    assert b.startswith("Be brief.\n\n")
    assert len(b) >= 40, "text in front of it"
    assert again_a == f"{a}answer {len(a)}\n\n{FOLLOW_UP}\n\n"
    assert again_b.startswith(b)


async def test_drafters_know_the_answer_and_are_wrong_where_they_shall(parity, beds):
    await parity.run()
    assert beds.configs[PLAIN]["drafters"]["order"] == []
    assert beds.configs["suffix"]["drafters"]["order"] == ["suffix"]
    assert beds.configs[NOW_AND_THEN]["drafters"]["replay"]["wrong_every"] == 2, "a lane of three"
    replies = [len(f"answer {len(prompt)}") for prompt in beds.asked[PLAIN][1:]]
    assert [len(ids) for ids in beds.recorded["oracle"]] == replies


async def test_what_is_equal_is_no_failure_and_counts_are_told(parity, beds):
    courses = await parity.run()
    assert not any(course.failed for course in courses)
    assert {(c.drafted, c.accepted, c.restored) for c in courses if c.title != "stock"} == {(5, 4, 3)}
    assert courses[-1].tokens == 8


@pytest.mark.parametrize(
    ("changed", "equal", "rows"),
    [
        ({"pieces": ("answer ", "no")}, False, True),
        ({"tokens": 3}, False, True),
        ({"logprobs": (-0.5, -0.26)}, True, False),
    ],
)
async def test_another_token_count_or_row_is_seen_and_fails_where_it_is_promised(parity, beds, changed, equal, rows):
    beds.says = lambda title, reply: replace(reply, **changed) if title in ("stock", "junk") else reply
    courses = {course.title: course for course in await parity.run()}
    for title in ("stock", "junk"):
        assert all(trial.equal is equal and trial.same_rows is rows for trial in courses[title].trials)
    assert [title for title, course in courses.items() if course.failed] == ["junk"]


@pytest.mark.parametrize("title", [PLAIN, "junk"])
async def test_a_model_that_stock_serves_in_both_is_no_comparison(parity, beds, title):
    state = parity.folder / title / "state"
    decision_log.record(state, "parity:latest", "stock", "its sliding window")
    with pytest.raises(EngineError, match=r"stock serves .* its sliding window"):
        await parity.run()
