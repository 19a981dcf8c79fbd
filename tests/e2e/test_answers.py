"""Clients of an overlaid Ollama get what a stock one gives, with speculation on and off."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import ollama
import psutil
import pytest

from pilotfish.daemon.lab.workloads import load_workloads
from tests.e2e.ollama_server import BARE, GREEDY, MODEL, SAME_KERNELS, SEEDED, serving
from tests.waiting import wait_until

pytestmark = [pytest.mark.ollama, pytest.mark.model, pytest.mark.timeout(600)]

LINES = "Write ten lines, each starting with Alpha."
PROMPTS = [
    LINES,
    "Repeat after me, twice: the quick brown fox jumps over the lazy dog, and then it rests.",
    "List the numbers from one to twenty in words.",
]
SOME = slice(1, None, 3)  # workloads: one to copy from, one to sum up, one to make up
COUNTED = ("eval_count", "prompt_eval_count", "done_reason")
ALL = slice(None)


@pytest.fixture(scope="module")
def answers_of():
    """`answers_of(server, options)`: every workload's prompt answered, or some, as (text, ids, counts)."""

    def ask(server, options, some=slice(None)):
        short = {**options, "num_predict": 24}
        answers = [
            server.client.generate(MODEL, workload.prompt, system=workload.system, options=short)
            for workload in load_workloads()[some]
        ]
        return [(a.response, list(a.context or ()), *(a[name] for name in COUNTED)) for a in answers]

    return ask


@pytest.mark.parametrize(
    ("options", "some"),
    [
        pytest.param(GREEDY, slice(0, None, 3), id="greedy"),
        pytest.param(SEEDED, SOME, id="seeded"),
        pytest.param(GREEDY, ALL, id="all, greedy", marks=pytest.mark.long),
        pytest.param(SEEDED, ALL, id="all, seeded", marks=pytest.mark.long),
    ],
)
def test_answers_equal_stocks_and_those_without_speculation(overlaid, stock, answers_of, options, some):
    speculative = answers_of(overlaid, options, some)

    assert overlaid.decisions()[-1]["decision"] == "runner"
    assert overlaid.drafted() > 0
    assert len(speculative) == len(load_workloads()[some])
    assert speculative == answers_of(stock, options, some)


def test_switched_off_in_the_config_a_model_is_stocks_from_the_next_load_on(overlaid, answers_of):
    speculative = answers_of(overlaid, SEEDED, SOME)
    overlaid.unload()
    overlaid.config.write_text("[speculation]\nenabled = false\n")
    try:
        plain = answers_of(overlaid, SEEDED, SOME)
        decision = overlaid.decisions()[-1]
        overlaid.unload()
    finally:
        overlaid.config.write_text("[speculation]\nenabled = true\n")

    assert plain == speculative
    assert decision["decision"] == "stock"
    assert f"{MODEL}:latest" in decision["model"]
    assert "switched off" in decision["reason"]


@pytest.mark.parametrize("shift", [None, False])
def test_an_answer_meets_its_contexts_end_as_stocks_does(overlaid, stock, shift):
    prompt = f"Numbers, one after the other: {', '.join(map(str, range(1, 42)))},"
    options = {**GREEDY, "num_ctx": 256, "num_predict": 180}
    asked = {"model": MODEL, "prompt": prompt, "raw": True, "stream": False, "options": options, "shift": shift}
    answers = [server.http.post("/api/generate", json=asked, timeout=300).json() for server in (overlaid, stock)]

    assert overlaid.decisions()[-1]["decision"] == "runner"
    found = [[answer[name] for name in ("response", *COUNTED)] for answer in answers]
    assert found[0] == found[1]
    assert answers[0]["eval_count"] == (180 if shift is None else 256 - answers[0]["prompt_eval_count"])


def test_a_stream_says_what_the_whole_answer_says(overlaid):
    messages = [{"role": "user", "content": LINES}]
    whole = overlaid.client.chat(MODEL, messages, options=GREEDY)
    chunks = list(overlaid.client.chat(MODEL, messages, options=GREEDY, stream=True))

    assert "".join(chunk.message.content or "" for chunk in chunks) == whole.message.content
    assert chunks[-1].done
    assert (chunks[-1].eval_count, chunks[-1].done_reason) == (whole.eval_count, whole.done_reason)
    assert len(chunks) > whole.eval_count / 2, "chunks hold a token each, as stock sends them"


def test_stop_strings_and_seeds_count_as_in_stock(overlaid, stock):
    options = {**SEEDED, "stop": [","], "num_predict": 64}
    ours, theirs = (server.client.generate(MODEL, LINES, options=options) for server in (overlaid, stock))
    again = overlaid.client.generate(MODEL, LINES, options=options)

    assert "," not in ours.response
    assert [ours[name] for name in COUNTED] == [theirs[name] for name in COUNTED]
    assert ours.response == theirs.response == again.response
    other = overlaid.client.generate(MODEL, LINES, options={**SEEDED, "seed": 7})
    assert other.response != overlaid.client.generate(MODEL, LINES, options=SEEDED).response


def test_structured_output_obeys_its_schema(overlaid):
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 12}, "legs": {"enum": [2, 4]}},
        "required": ["name", "legs"],
    }
    messages = [{"role": "user", "content": "Describe a dog."}]
    answer = overlaid.client.chat(MODEL, messages, format=schema, options={**GREEDY, "num_predict": 96})

    said = json.loads(answer.message.content)
    assert said.keys() == {"name", "legs"}
    assert said["legs"] in (2, 4)
    assert answer.done_reason == "stop"


def test_two_at_once_answer_as_one_after_the_other(overlaid):
    def ask(prompt):
        return overlaid.client.generate(MODEL, prompt, options=SEEDED).response

    with ThreadPoolExecutor(2) as pool:
        together = list(pool.map(ask, PROMPTS[:2]))

    assert together == [ask(prompt) for prompt in PROMPTS[:2]]


def test_an_answer_that_is_left_frees_the_model_for_the_next(overlaid):
    stream = overlaid.client.generate(MODEL, LINES, options={**GREEDY, "num_predict": 1500}, stream=True)
    next(iter(stream))
    stream.close()

    wait_until(lambda: not overlaid.runner().get("/slots").json()[0]["is_processing"], "it still generates")
    assert overlaid.client.generate(MODEL, PROMPTS[1], options=GREEDY).response


def test_embeddings_are_refused_as_stock_refuses_them(overlaid, stock):
    refusals = []
    for server in (overlaid, stock):
        with pytest.raises(ollama.ResponseError) as refused:
            server.client.embed(MODEL, "a word")
        refusals.append((refused.value.status_code, refused.value.error.partition(".")[0]))

    assert refusals[0] == refusals[1] == (501, "This server does not support embeddings")


def test_a_model_without_a_template_is_rendered_by_the_runner(overlaid, stock):
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": LINES}]
    answers = [server.client.chat(BARE, messages, options=SEEDED) for server in (overlaid, stock)]

    assert "--no-jinja" not in overlaid.launched()[-1]
    assert overlaid.decisions()[-1]["decision"] == "runner"
    assert answers[0].message.content == answers[1].message.content
    assert [answers[0][name] for name in COUNTED] == [answers[1][name] for name in COUNTED]


@pytest.fixture
def on_ollamas_libraries(overlay, folder, models):
    """An overlaid server whose runner computes with Ollama's own libllama."""
    place = folder / "ollamas-libraries"
    place.mkdir()
    (place / "pilotfish.toml").write_text('[engine]\nlibllama = "ollama"\n')
    with serving(overlay, place, models, SAME_KERNELS) as server:
        yield server


def test_ollamas_own_libraries_give_stocks_answers_too(on_ollamas_libraries, stock, answers_of, ollama_binary):
    answers = answers_of(on_ollamas_libraries, SEEDED, SOME)
    decision = on_ollamas_libraries.decisions()[-1]

    assert decision["decision"] == "runner"
    assert "with the libllama in" in decision["reason"]
    (runner,) = psutil.Process(on_ollamas_libraries.process.pid).children()
    loaded = {Path(mapped.path) for mapped in runner.memory_maps() if "libllama.so" in mapped.path}
    assert {path.parent for path in loaded} == {ollama_binary.parent.parent / "lib" / "ollama"}
    assert on_ollamas_libraries.drafted() > 0
    assert answers == answers_of(stock, SEEDED, SOME)
