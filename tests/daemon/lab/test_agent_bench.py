"""What the benchmark of an agent's day compares, and what it makes of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from pilotfish.daemon.lab.agent_bench import (
    FRONT,
    OVERLAID,
    PLAIN,
    STOCK,
    AgentBench,
    Course,
    contestants,
    document,
    exact,
)
from pilotfish.daemon.lab.agent_session import MODES, AgentSession, AgentTurn, Worked
from pilotfish.daemon.lab.floor_servers import OllamaReply, Ollamas
from pilotfish.hooks.errors import UsageError
from tests.manifests.builders import tiny_gguf

SESSION = AgentSession("", (AgentTurn("edit", True, "Edit."),))


def course(name: str, *texts: str, mode: str = "greedy", seconds: float = 1.0) -> Course:
    sessions = [Worked((OllamaReply(text, 3, 4, "stop", 0.1, 0.4, 0.0),), seconds + n) for n, text in enumerate(texts)]
    return Course(name, mode, sessions)


def test_the_plain_answers_come_from_the_same_server_as_those_with_drafts():
    by_name = {one.name: one for one in contestants(["ngram-mod"])}
    assert list(by_name) == [STOCK, "stock, ngram-mod", OVERLAID, FRONT, PLAIN]
    assert by_name[PLAIN].server == by_name[FRONT].server == FRONT
    assert by_name[PLAIN].options == {"speculate": False}
    assert by_name["stock, ngram-mod"].environment == {"LLAMA_ARG_SPEC_TYPE": "ngram-mod"}


def test_answers_are_exact_when_every_round_with_drafts_and_without_is_the_same():
    assert exact([course(FRONT, "a", "a"), course(PLAIN, "a", "a"), course(STOCK, "b")])
    assert exact(
        [course(FRONT, "a"), course(PLAIN, "a"), course(FRONT, "b", mode="hot"), course(PLAIN, "b", mode="hot")]
    )


def test_one_other_answer_is_noticed():
    assert not exact([course(FRONT, "a", "x"), course(PLAIN, "a", "a")])
    assert not exact([course(FRONT, "a"), course(PLAIN, "b")])
    assert not exact([course(FRONT), course(PLAIN)]), "nothing was compared"


def test_who_was_not_asked_is_not_compared():
    assert exact([course(STOCK, "a", "b"), course(OVERLAID, "a")])


async def test_a_name_that_nobody_has_is_said_before_anything_starts(tmp_path):
    ollamas = Ollamas(tmp_path / "none", tmp_path / "none", "0.33.2")
    model = tiny_gguf(tmp_path / "tiny.gguf")
    bench = AgentBench(ollamas, model, SESSION, tmp_path, MODES, only=("overlay",))
    with pytest.raises(UsageError, match="--only overlay: unknown; there are stock, overlaid, pilotfish serve"):
        await bench.run()


def test_the_document_has_medians_and_no_texts():
    bench = AgentBench(Ollamas(Path("o"), Path("p"), "0.33.2"), Path("m.gguf"), SESSION, Path("f"), MODES)
    failed = Course(OVERLAID, "greedy", failure="it broke")
    said = document(bench, [course(STOCK, "secret", "secret", "secret", seconds=2.0), failed], {"machine": {}})
    stock, overlaid = said["courses"]
    assert (stock["seconds"], stock["rounds"], stock["tokens"]) == (3.0, [2.0, 3.0, 4.0], 4)
    assert stock["turns"][0] == [{"prompt": 3, "tokens": 4, "first": 0.1, "seconds": 0.4}]
    assert (overlaid["failure"], overlaid["rounds"]) == ("it broke", [])
    assert "secret" not in repr(said)
