"""The runner against a stock llama-server with the same cache types: the same ids, keys, errors and probabilities."""

from __future__ import annotations

import json

import pytest

from pilotfish.daemon.runner.endpoints import REFUSED
from tests.long_forms import every_kind_once

pytestmark = [pytest.mark.model, pytest.mark.stock]

PROMPTS = {
    "copy": (
        "<|im_start|>user\nRepeat this list with one word changed: apple, pear, plum, cherry, apple, pear, plum, "
        "cherry.<|im_end|>\n<|im_start|>assistant\n"
    ),
    "code": "def add(a, b):\n    return a + b\n\ndef subtract(a, b):\n    return",
    "open": "<|im_start|>user\nTell me a story about a lighthouse.<|im_end|>\n<|im_start|>assistant\n",
    "raw": "The capital of France is",
}
SAMPLING = {
    "greedy": {"temperature": 0},
    "seeded": {"temperature": 0.8, "seed": 42, "repeat_penalty": 1.0},
    "seeded, penalty": {"temperature": 0.8, "seed": 42, "repeat_penalty": 1.1},
    "ollama's defaults": {
        "temperature": 0.8, "top_k": 40, "top_p": 0.9, "min_p": 0.0, "repeat_penalty": 1.1, "repeat_last_n": 64,
        "presence_penalty": 0.0, "frequency_penalty": 0.0, "typical_p": 1.0, "seed": 7,
    },
}  # fmt: skip
TEXTS = [
    "",
    " ",
    "Hello",
    "<|im_start|>",
    "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n",
    "<|endoftext|><|im_start|>",
    "<s>not a token here</s>",
    "naïve café 😊 龘 مرحبا",
    "a\u0000b",
    "  leading and trailing  ",
    "tab\tand\r\nnewlines\n\n\n",
    "0123456789 3.14159 1e-10",
    "x" * 5000,
]
OWN_KEYS = {"pilotfish", "draft_n", "draft_n_accepted"}


@pytest.mark.parametrize(("prompt", "sampling"), every_kind_once(PROMPTS, SAMPLING, others=pytest.mark.long))
def test_the_same_ids(runner, stock, prompt, sampling):
    body = {"prompt": prompt, "n_predict": 48, "return_tokens": True, **sampling}
    ours, theirs = (server.post("/completion", **body).json() for server in (runner, stock))

    assert ours["tokens"] == theirs["tokens"]
    for key in ("content", "stop_type", "tokens_predicted", "tokens_evaluated", "tokens_cached", "truncated", "prompt"):
        assert ours[key] == theirs[key], key


def test_the_same_ids_after_another_request_warmed_the_cache(runner, stock):
    body = {"prompt": PROMPTS["open"], "n_predict": 24, "return_tokens": True, "temperature": 0}
    answers = [server.post("/completion", **body).json()["tokens"] for server in (runner, stock, runner, stock)]
    assert answers.count(answers[0]) == 4


@pytest.mark.parametrize("parse_special", [True, False])
@pytest.mark.parametrize("add_special", [True, False])
def test_the_same_tokens_for_tricky_texts(runner, stock, add_special, parse_special):
    for text in TEXTS:
        body = {"content": text, "add_special": add_special, "parse_special": parse_special}
        ours, theirs = (server.post("/tokenize", **body).json()["tokens"] for server in (runner, stock))
        assert ours == theirs, text
        texts = [server.post("/detokenize", tokens=ours).json()["content"] for server in (runner, stock)]
        assert texts[0] == texts[1]


@pytest.mark.parametrize(
    "prompts",
    [
        (*TEXTS[1:-1], "x" * 500, [1, "user", 198], {"prompt_string": "<|im_start|>x"}),
        pytest.param(TEXTS[-1:], marks=pytest.mark.long),
    ],
    ids=["short ones", "a long one"],
)
def test_a_raw_prompt_is_read_as_stock_reads_it(runner, stock, prompts):
    for prompt in prompts:
        body = {"prompt": prompt, "n_predict": 1, "temperature": 0, "return_tokens": True}
        ours, theirs = (server.post("/completion", **body).json() for server in (runner, stock))
        assert ours["tokens_evaluated"] == theirs["tokens_evaluated"], prompt
        assert ours["prompt"] == theirs["prompt"]


def keys(value, path=""):
    """Every path of keys in `value`; the first item stands for a list."""
    if isinstance(value, dict):
        found = set()
        for key, item in value.items():
            if key not in OWN_KEYS:
                found |= {f"{path}/{key}"} | keys(item, f"{path}/{key}")
        return found
    return keys(value[0], f"{path}[]") if isinstance(value, list) and value else set()


def chunks(server, path, body):
    with server.http.stream("POST", path, json={**body, "stream": True}) as response:
        lines = [line.removeprefix("data: ") for line in response.iter_lines() if line]
    return [json.loads(line) if line != "[DONE]" else line for line in lines]


CHAT = {"messages": [{"role": "user", "content": "Say hi."}], "max_tokens": 3, "temperature": 0}
OK = {"grammar": 'root ::= "ok"', "temperature": 0}  # ends by itself
FORMS = {
    "native, ended": ("/completion", {"prompt": "A", **OK}),
    "native, some fields": ("/completion", {"prompt": "A", **OK, "response_fields": ["content", "stop", "tokens"]}),
    "text, ended": ("/v1/completions", {"prompt": "A", **OK}),
    "chat, ended": ("/v1/chat/completions", {**CHAT, **OK, "max_tokens": 8}),
    "native": ("/completion", {"prompt": PROMPTS["raw"], "n_predict": 3, "temperature": 0}),
    "native, probabilities": ("/completion", {"prompt": "A", "n_predict": 2, "temperature": 0, "n_probs": 2}),
    "native, timings": ("/completion", {"prompt": "A", "n_predict": 2, "temperature": 0, "timings_per_token": True}),
    "text": ("/v1/completions", {"prompt": PROMPTS["raw"], "max_tokens": 3, "temperature": 0, "logprobs": 1}),
    "chat": ("/v1/chat/completions", CHAT),
    "chat, probabilities": ("/v1/chat/completions", {**CHAT, "logprobs": True, "top_logprobs": 1}),
    "chat, usage": ("/v1/chat/completions", {**CHAT, "stream_options": {"include_usage": True}}),
}


@pytest.mark.parametrize("form", FORMS)
def test_the_same_keys(runner, stock, form):
    path, body = FORMS[form]
    ours, theirs = (server.post(path, **body).json() for server in (runner, stock))
    assert keys(ours) == keys(theirs)


@pytest.mark.parametrize("form", FORMS)
def test_the_same_stream(runner, stock, form):
    path, body = FORMS[form]
    ours, theirs = (chunks(server, path, body) for server in (runner, stock))
    assert [keys(chunk) for chunk in ours] == [keys(chunk) for chunk in theirs]
    assert [_text(chunk) for chunk in ours] == [_text(chunk) for chunk in theirs]


def _text(chunk):
    if chunk == "[DONE]":
        return chunk
    if "content" in chunk:
        return chunk["content"], chunk["tokens"], chunk["stop"]
    return [(choice.get("text"), choice.get("delta"), choice["finish_reason"]) for choice in chunk["choices"]]


def test_a_stop_string_streams_as_in_stock(runner, stock):
    for stop in (["\n"], ["\n\nThe"], [" States"], ["nothing like this"]):
        body = {"prompt": PROMPTS["raw"], "n_predict": 12, "temperature": 0, "stop": stop}
        ours, theirs = (chunks(server, "/completion", body) for server in (runner, stock))
        assert [_text(chunk) for chunk in ours] == [_text(chunk) for chunk in theirs]
        for key in ("stop_type", "stopping_word", "tokens_predicted", "has_new_line"):
            assert ours[-1][key] == theirs[-1][key], (stop, key)


def test_settings_are_reported_as_in_stock(runner, stock):
    body = {
        "prompt": "A", "n_predict": 1, "seed": 5, "top_k": -3, "top_p": 7, "temperature": -4, "min_p": 0.3,
        "logit_bias": [[5, False], ["x", 1.5]], "stop": ["q"], "ignore_eos": False,
    }  # fmt: skip
    ours, theirs = (server.post("/completion", **body).json()["generation_settings"] for server in (runner, stock))
    assert {key: value for key, value in theirs.items() if ours[key] != value} == {"reasoning_format": "deepseek"}


def test_probabilities_are_close(runner, stock):
    body = {"prompt": PROMPTS["open"], "n_predict": 16, "temperature": 0, "n_probs": 5}
    ours, theirs = (server.post("/completion", **body).json()["completion_probabilities"] for server in (runner, stock))
    assert len(ours) == len(theirs) == 16
    for mine, stocks in zip(ours, theirs, strict=True):
        assert (mine["id"], mine["token"], mine["bytes"]) == (stocks["id"], stocks["token"], stocks["bytes"])
        assert mine["logprob"] == pytest.approx(stocks["logprob"], abs=0.02)
        assert [top["id"] for top in mine["top_logprobs"]][:2] == [top["id"] for top in stocks["top_logprobs"]][:2]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/completion", {}),
        ("/completion", {"prompt": []}),
        ("/completion", {"prompt": 5}),
        ("/completion", {"prompt": [999999]}),
        ("/completion", {"prompt": [-1]}),
        ("/completion", {"prompt": "a", "temperature": "hot"}),
        ("/completion", {"prompt": "a", "n_predict": -2}),
        ("/completion", {"prompt": "a", "repeat_last_n": -1}),
        ("/completion", {"prompt": "a", "n_cmpl": 2}),
        ("/completion", {"prompt": "a", "stream": 1}),
        ("/completion", {"prompt": "a", "stop": [5]}),
        ("/completion", {"prompt": "a", "grammar": "root ::= ("}),
        ("/completion", {"prompt": "a", "json_schema": {"type": "foo"}}),
        ("/completion", {"prompt": "a", "json_schema": "x"}),
        ("/completion", {"prompt": "word " * 3000}),
        ("/tokenize", {"content": 5}),
        ("/detokenize", {"tokens": "x"}),
        ("/v1/embeddings", {"input": "x"}),
        ("/props", {}),
        ("/nowhere", {}),
        ("/v1/chat/completions", {}),
        ("/v1/chat/completions", {"messages": "x"}),
        ("/v1/chat/completions", {"messages": [{"role": "user"}]}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": 5}]}),
        ("/v1/chat/completions", {**CHAT, "top_logprobs": 1}),
    ],
)
def test_the_same_refusal(runner, stock, path, body):
    ours, theirs = (server.post(path, **body) for server in (runner, stock))
    assert ours.status_code == theirs.status_code
    mine, stocks = ours.json()["error"], theirs.json()["error"]
    assert mine.keys() == stocks.keys()
    for key in mine.keys() - {"message"}:
        assert mine[key] == stocks[key], key


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "user", "content": "hi"}],
        [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}],
        [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}],
        [{"role": "user", "content": "a"}, {"role": "assistant", "content": "The answer"}],
        [{"role": "assistant", "content": None}, {"role": "odd", "content": "<|im_end|> 😊"}],
    ],
)
def test_the_same_prompt_from_the_template(runner, stock, messages):
    ours, theirs = (server.post("/apply-template", messages=messages).json() for server in (runner, stock))
    assert ours == theirs


@pytest.mark.parametrize("path", ["/props", "/v1/models", "/health"])
def test_the_same_keys_about_itself(runner, stock, path):
    ours, theirs = (keys(server.http.get(path).json()) for server in (runner, stock))
    assert ours == theirs


@pytest.mark.parametrize(("method", "path"), [(method, path) for method, path, _ in REFUSED])
def test_what_stock_refuses_without_a_flag_is_refused_with_its_status(runner, stock, method, path):
    asked = {"content": "a", "input": "a", "query": "a", "documents": ["a"]}
    path = path.replace("{id}", "0") + ("?action=erase" if "{id}" in path else "")
    answers = [server.http.request(method, path, json=asked) for server in (runner, stock)]
    assert [answer.status_code for answer in answers] == [501, 501]
    assert len({answer.json()["error"]["type"] for answer in answers}) == 1


def test_there_are_no_adapters(runner, stock):
    assert [server.http.get("/lora-adapters").json() for server in (runner, stock)] == [[], []]


@pytest.mark.parametrize(
    "fields",
    [
        {"id_slot": 0}, {"id_slot": 7}, {"n_predict": -1, "stop": ["."]}, {"t_max_predict_ms": 1},
        {"t_max_predict_ms": 600_000}, {"n_cmpl": 1}, {"n_cache_reuse": 0}, {"xtc_threshold": 0.9, "dry_base": 2},
        {"return_progress": True}, {"samplers": "edskypmxt"}, {"mirostat_tau": 9}, {"user": "me", "model": "other"},
        {"logit_bias": {" Paris": -5}}, {"logit_bias": [[" Paris", False], [260, 1]]},
    ],
)  # fmt: skip
def test_a_field_that_is_served_does_what_it_does_in_stock(runner, stock, fields):
    body = {"prompt": "A list, line by line:\n", "n_predict": 24, "temperature": 0, "return_tokens": True, **fields}
    ours, theirs = (server.post("/completion", **body).json() for server in (runner, stock))
    assert ours["tokens"] == theirs["tokens"]
    for key in ("content", "stop_type", "tokens_predicted", "truncated"):
        assert ours[key] == theirs[key], key


def test_as_many_answers_as_there_are_slots(runner, stock):
    answers = [server.post("/completion", prompt="A", n_predict=1, n=2) for server in (runner, stock)]
    assert [answer.status_code for answer in answers] == [400, 400]
