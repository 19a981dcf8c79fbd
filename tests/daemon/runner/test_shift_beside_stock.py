"""Across the context's end, beside a stock llama-server with the same cache types: the same ids, counts and words."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server_processes import RUNNER, ServerProcess, running, stock_server

pytestmark = [pytest.mark.model, pytest.mark.stock]

STOCKS_TYPES = ("--flash-attn", "on", "--cache-type-k", "f16", "--cache-type-v", "f16")
SETTINGS = ("-c", "256", "-t", "1", *STOCKS_TYPES, "--context-shift", "--keep", "4")
ITEMS = "apple, pear, plum, cherry, " * 14  # so many that 240 more tokens meet the end twice
LIST = f"<|im_start|>user\nRepeat this list: {ITEMS}apple.<|im_end|>\n<|im_start|>assistant\n"
SAID = ("content", "stop_type", "truncated", "tokens_predicted", "tokens_evaluated", "tokens_cached")


@pytest.fixture(scope="module")
def both(
    smollm2_path: Path, state: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[ServerProcess, ServerProcess]]:
    logs = tmp_path_factory.mktemp("shift")
    with (
        running(RUNNER, smollm2_path, logs / "runner", *SETTINGS, env=state) as runner,
        running(stock_server(), smollm2_path, logs / "stock", *SETTINGS) as stock,
    ):
        yield runner, stock


@pytest.mark.parametrize(
    ("prompt", "n_predict", "asked"),
    [
        (LIST, 240, {}),
        (LIST, 240, {"n_keep": 20, "n_discard": 100}),
        (LIST, 240, {"n_keep": -1}),
        pytest.param("Once upon a time there was a", 400, {"n_keep": 20, "n_discard": 100}, marks=pytest.mark.long),
    ],
)
def test_the_same_ids_across_the_end(both, prompt, n_predict, asked):
    body = {"prompt": prompt, "n_predict": n_predict, "temperature": 0, "ignore_eos": True, "return_tokens": True}
    body |= asked
    ours, theirs = (server.post("/completion", **body).json() for server in both)
    plain = both[0].post("/completion", **body, speculate=False).json()

    assert ours["tokens"] == theirs["tokens"]
    assert plain["tokens"] == ours["tokens"]
    assert {key: ours[key] for key in SAID} == {key: theirs[key] for key in SAID}
    settings = ours["generation_settings"], theirs["generation_settings"]
    assert [found["n_keep"] for found in settings] == [asked.get("n_keep", 4)] * 2
    assert [found["n_discard"] for found in settings] == [asked.get("n_discard", 0)] * 2


def test_a_prompt_that_does_not_fit_is_refused_all_the_same(both):
    answers = [server.post("/completion", prompt="word " * 300, n_predict=1) for server in both]
    assert [answer.status_code for answer in answers] == [400, 400]
    ours, theirs = (answer.json()["error"] for answer in answers)
    assert {key: ours[key] for key in ("type", "n_ctx", "n_prompt_tokens")} == {
        key: theirs[key] for key in ("type", "n_ctx", "n_prompt_tokens")
    }
