"""A model over two far ends under a real Ollama: its clients see nothing of it, or the reason why not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import ollama
import pytest

from tests.e2e.ollama_server import BARE, GREEDY, OllamaServer, serving
from tests.far_ends import RunningFarEnd, far_end, rpc_folder

pytestmark = [pytest.mark.ollama, pytest.mark.rpc, pytest.mark.model, pytest.mark.timeout(600)]

STORY = "One day a fox and a crow"  # which goes on and on
PROMPT = "def add(a, b):\n    return a + b\n\n" * 3


@pytest.fixture(scope="module")
def ends(folder: Path) -> Iterator[list[RunningFarEnd]]:
    with far_end(folder, memory=2048) as first, far_end(folder, memory=2048) as second:
        yield [first, second]


@pytest.fixture(scope="module")
def spread(overlay: Path, folder: Path, models: Path, ends: list[RunningFarEnd]) -> Iterator[OllamaServer]:
    with serving(overlay, folder / "spread", models) as server:
        named = ", ".join(f'"{end.endpoint}"' for end in ends)
        server.config.write_text(f'[engine]\nlibllama = "{rpc_folder()}"\nrpc = [{named}]\n')
        yield server


def said(server: OllamaServer) -> str:
    return server.client.generate(BARE, PROMPT, raw=True, options=GREEDY).response


def test_it_is_answered_over_them_and_a_far_end_that_ends_is_an_error_once(spread, ends):
    first = said(spread)
    assert all(end.health()["busy"] for end in ends)
    for _ in range(20):  # on busy cores blocks pay only once the drafter remembers an answer
        if spread.drafted():
            break
        assert said(spread) == first
    else:
        pytest.fail("nothing was drafted in 20 answers that are alike")
    assert f"over {ends[0].endpoint}, {ends[1].endpoint}" in spread.decisions()[-1]["reason"]
    options = {**GREEDY, "num_predict": 1500, "stop": []}
    long = spread.client.generate(BARE, STORY, raw=True, options=options, stream=True)
    next(long)
    ends[1].kill_child()
    with pytest.raises(ollama.ResponseError, match=f"the far end {ends[1].endpoint} was lost"):
        list(long)
    for end in ends:
        end.wait_until_free()
    assert said(spread) == first


def test_one_that_is_not_there_is_an_error_with_its_name_and_stock_is_not_asked(spread, ends):
    spread.unload()
    ends[0].pause()
    try:
        with pytest.raises(ollama.ResponseError, match=f"{ends[0].endpoint} does not answer"):
            said(spread)
    finally:
        ends[0].resume()
    assert [one["decision"] for one in spread.decisions()] == ["runner"] * len(spread.decisions())
    for end in ends:
        end.wait_until_free()
    assert said(spread)


def test_speculation_that_is_switched_off_leaves_it_where_it_is(spread, ends):
    with_drafts = said(spread)
    spread.unload()
    before = spread.config.read_text()
    spread.config.write_text(f"[speculation]\nenabled = false\n{before}")
    try:
        assert said(spread) == with_drafts
        assert all(end.health()["busy"] for end in ends)
    finally:
        spread.config.write_text(before)
