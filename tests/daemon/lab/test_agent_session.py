"""The session that the benchmark of an agent's day goes through."""

from __future__ import annotations

import pytest

from pilotfish.daemon.lab.agent_session import AgentSession, AgentTurn, Worked, load_session, work
from pilotfish.daemon.lab.floor_servers import OllamaReply
from pilotfish.hooks.errors import UsageError


def reply(text: str, *, tokens: int = 5, first: float = 0.1, seconds: float = 0.5) -> OllamaReply:
    return OllamaReply(text, 10, tokens, "stop", first, seconds, 0.0)


class Echo:
    """Answers with the number of the messages it was sent, and remembers them."""

    def __init__(self) -> None:
        self.asked: list[list[dict[str, str]]] = []

    async def chat(self, model, messages, options):
        self.asked.append([dict(message) for message in messages])
        return reply(f"{model} {len(messages)} {options['seed']}")


SESSION = AgentSession(
    "be exact",
    (AgentTurn("read", False, "Read."), AgentTurn("edit", True, "Edit."), AgentTurn("sum", False, "Sum up.")),
)


async def test_each_answer_is_part_of_the_next_prompt():
    server = Echo()
    worked = await work(server, "m", SESSION, {"seed": 7})
    assert worked.texts == ("m 2 7", "m 4 7", "m 6 7")
    assert [message["content"] for message in server.asked[-1]] == [
        "be exact", "Read.", "m 2 7", "Edit.", "m 4 7", "Sum up.",
    ]  # fmt: skip
    assert [message["role"] for message in server.asked[1]] == ["system", "user", "assistant", "user"]


def test_rates_count_what_comes_after_the_first_token_in_the_turns_of_a_kind():
    replies = (reply("a", tokens=3, first=1.0, seconds=2.0), reply("b", tokens=11, seconds=1.1), reply("c", tokens=2))
    worked = Worked(replies, 9.0)
    assert worked.rate(SESSION, repeats=True) == pytest.approx(10.0)
    assert worked.rate(SESSION, repeats=False) == pytest.approx(3 / 1.4)
    assert (worked.tokens, worked.first) == (16, 0.1)
    assert Worked((reply("", tokens=1, first=0.5),) * 3, 1.5).rate(SESSION, repeats=True) == 0.0


def test_the_session_that_comes_along_has_twelve_turns_of_both_kinds():
    session = load_session()
    assert len(session.turns) == 12
    assert {turn.repeats for turn in session.turns} == {True, False}
    assert len({turn.name for turn in session.turns}) == 12


@pytest.mark.parametrize("text", ["", "[]", '{"turns": []}', '{"turns": [{"name": "a"}]}', '{"turns": 3}'])
def test_what_is_not_a_session_is_named(tmp_path, text):
    file = tmp_path / "mine.json"
    file.write_text(text)
    with pytest.raises(UsageError, match=r"mine\.json: not a session"):
        load_session(file)


def test_a_session_that_is_not_there_is_named(tmp_path):
    with pytest.raises(UsageError, match=r"none\.json: cannot be read"):
        load_session(tmp_path / "none.json")
