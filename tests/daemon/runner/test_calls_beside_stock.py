"""Functions are called as beside a stock llama-server with the same template, in every family's form."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.daemon.runner.family_servers import TEMPLATES, TOOLS_JSON, both, streamed

pytestmark = [pytest.mark.model, pytest.mark.stock]


def asked_before(city, id):
    call = {"type": "function", "function": {"name": "weather", "arguments": json.dumps({"city": city})}, "id": id}
    return [
        {"role": "user", "content": f"Weather in {city}?"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
    ]


# After some examples even a small model calls the function.
EXAMPLES = [
    *(turn for n, city in enumerate(("London", "Rome", "Oslo", "Bonn")) for turn in asked_before(city, f"abcdef10{n}")),
    {"role": "user", "content": "Weather in Paris?"},
]


def asked_of(family):
    """How calls are asked for (choice, whether several): in all ways of one family, in three at most of each other."""
    if family == "hermes":
        return list(itertools.product(("auto", "required", "none"), (True, False)))
    if family == "open":  # shows no tools: ours relays what has some
        return []
    if family == "mistral-ids":  # stock wants a marker twice that such models, and this template, write once
        return [("none", True)]
    if family == "channels":  # this model goes on behind a call, which those that have channels do not
        return [("auto", True), ("required", False)]
    return [("auto", True), ("required", False), ("none", True)]


def asked():
    """In short: every form of calls, and of one family every way to ask for them."""
    for family in TEMPLATES:
        for choice, several in asked_of(family):
            form = "thinking" not in family and (choice != "none" or family == "mistral-ids")
            title = f"{family}-{choice}-{'several' if several else 'one'}"
            yield pytest.param(
                family, choice, several, id=title, marks=() if form or family == "hermes" else pytest.mark.long
            )


@pytest.fixture(scope="module")
def calling(smollm2_path, state, tmp_path_factory) -> Iterator[Callable[[str], tuple]]:
    """`calling(family)`: both servers, with a model that calls functions by itself. Another family's end first."""
    running: dict[str, tuple] = {}
    with ExitStack() as loaded:

        def servers(family: str) -> tuple:
            if family not in running:
                loaded.close()
                running.clear()
                folder = tmp_path_factory.mktemp("calling")
                running[family] = loaded.enter_context(both(smollm2_path, family, state, folder))
            return running[family]

        yield servers


def without_ids(message):
    calls = [{**call, "id": ""} for call in message.pop("tool_calls", ())]
    return {**message, "tool_calls": calls}


@pytest.mark.parametrize(("family", "choice", "several"), list(asked()))
def test_the_same_calls(calling, family, choice, several):
    servers = calling(family)
    body = {"messages": EXAMPLES, "tools": [TOOLS_JSON[0]], "tool_choice": choice, "parallel_tool_calls": several}
    body |= {"temperature": 0, "max_tokens": 48}
    ours, theirs = (server.post("/v1/chat/completions", **body) for server in servers)
    if theirs.status_code != 200:
        assert "does not match the expected" in theirs.text, "stock gives up what it cannot read"
        assert ours.status_code == 200
        return
    same_calls(ours.json(), theirs.json(), called=family == "hermes" and choice != "none")
    ours, theirs = (streamed(server, **body) for server in servers)
    assert ours == theirs


def same_calls(ours, theirs, called):
    for answer in (ours, theirs):
        answer["choices"][0]["message"] = without_ids(answer["choices"][0]["message"])
    assert ours["choices"] == theirs["choices"]
    assert ours["usage"]["completion_tokens"] == theirs["usage"]["completion_tokens"]
    if called:
        assert theirs["choices"][0]["message"]["tool_calls"], "the examples are not enough: nothing is compared"
