"""The runner as Ollama starts it, with the real model: loading, answering, being left, being stopped."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import threading
import time

import httpx
import openai
import pytest

from tests.daemon.runner.settings import SETTINGS
from tests.server_processes import LOAD_SECONDS, RUNNER, running, spawn
from tests.waiting import wait_until

pytestmark = pytest.mark.model

LINES = "<|im_start|>user\nWrite ten lines, each starting with Alpha.<|im_end|>\n<|im_start|>assistant\n"
ESSAY = "<|im_start|>user\nWrite a long essay about rivers.<|im_end|>\n<|im_start|>assistant\n"


def stream(server, **body):
    with server.http.stream("POST", "/completion", json={**body, "stream": True}) as response:
        assert response.status_code == 200
        return [json.loads(line[6:]) for line in response.iter_lines() if line.startswith("data: ")]


def until_idle(server):
    """Wait until no request is being answered."""
    wait_until(lambda: not server.http.get("/slots").json()[0]["is_processing"], "it still generates")


def test_it_listens_while_it_loads_and_says_so(smollm2_path, state, tmp_path):
    checking = {"PILOTFISH_STATE": str(tmp_path), "PILOTFISH_CHECK_SECONDS": "1"}  # a lane that is known loads at once
    server = spawn(RUNNER, smollm2_path, tmp_path / "log", *SETTINGS, env={**state, **checking})
    try:
        seen = set()

        def loaded():
            assert server.process.poll() is None
            with contextlib.suppress(httpx.ConnectError):
                response = server.http.get("/health")
                seen.add((response.status_code, response.json().get("error", {}).get("message")))
            return (200, None) in seen

        wait_until(loaded, "it was never ready", LOAD_SECONDS)
        assert seen == {(200, None), (503, "Loading model")}
    finally:
        server.process.terminate()
        assert server.process.wait(60) == 0


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 0},
        {"temperature": 0.8, "seed": 42, "repeat_penalty": 1.1},
        {"temperature": 0.8, "seed": 42},
    ],
    ids=["greedy", "seeded with penalty", "seeded"],
)
def test_speculation_changes_no_token(runner, options):
    body = {"prompt": LINES, "n_predict": 96, "return_tokens": True, **options}
    plain = runner.post("/completion", **body, speculate=False).json()
    speculative = runner.post("/completion", **body).json()

    assert speculative["tokens"] == plain["tokens"]
    assert speculative["content"] == plain["content"]
    assert not plain["pilotfish"]["speculated"]
    assert "draft_n" not in plain["timings"]


def test_a_stream_says_what_the_whole_answer_says(runner):
    body = {"prompt": LINES, "n_predict": 48, "temperature": 0, "return_tokens": True}
    whole = runner.post("/completion", **body).json()
    *chunks, final = stream(runner, **body)

    assert "".join(chunk["content"] for chunk in chunks) == whole["content"]
    assert [token for chunk in chunks for token in chunk["tokens"]] + final["tokens"] == whole["tokens"]
    assert final["timings"]["predicted_n"] == whole["timings"]["predicted_n"] == 48


def test_the_same_request_twice_evaluates_the_same_prompt(runner):
    timings = [runner.post("/completion", prompt=ESSAY, n_predict=4, temperature=0).json()["timings"] for _ in range(2)]

    assert len({t["cache_n"] + t["prompt_n"] for t in timings}) == 1
    assert timings[1]["cache_n"] > 0


def test_a_character_cut_by_the_budget_is_dropped_everywhere(runner):
    body = {"prompt": "Repeat: 😊😊😊😊😊😊😊😊😊😊", "temperature": 0, "return_tokens": True}
    for budget in range(1, 6):
        whole = runner.post("/completion", **body, n_predict=budget).json()
        *chunks, _ = stream(runner, **body, n_predict=budget)
        assert "".join(chunk["content"] for chunk in chunks) == whole["content"]
        assert "\ufffd" not in whole["content"]


def test_a_grammar_is_obeyed(runner):
    answer = runner.post("/completion", prompt="A digit: ", n_predict=8, grammar='root ::= "[" [0-9] "]"').json()
    assert answer["content"][0] + answer["content"][2:] == "[]"
    assert answer["content"][1].isdigit()


def test_a_schema_is_obeyed_in_chat(runner):
    schema = {"type": "object", "properties": {"n": {"enum": [1, 2]}}, "required": ["n"], "additionalProperties": False}
    answer = runner.post(
        "/v1/chat/completions",
        messages=[{"role": "user", "content": "Give me a number."}],
        response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": schema}},
        max_tokens=32,
        temperature=0,
    ).json()
    assert json.loads(answer["choices"][0]["message"]["content"])["n"] in (1, 2)


def test_a_broken_grammar_is_the_requests_fault(runner):
    answer = runner.post("/completion", prompt="x", n_predict=4, grammar="root ::= (")
    assert (answer.status_code, answer.json()["error"]["type"]) == (400, "invalid_request_error")
    assert runner.http.get("/health").status_code == 200


@pytest.mark.parametrize("streamed", [True, False])
def test_a_closed_connection_frees_the_slot(runner, streamed):
    prompt = list(range(100, 1900))  # long enough to be left in the middle of the prompt
    body = json.dumps({"prompt": prompt, "n_predict": 100, "stream": streamed, "cache_prompt": False})
    request = f"POST /completion HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n{body}"
    with socket.create_connection(("127.0.0.1", runner.port)) as connection:
        connection.sendall(request.encode())
        time.sleep(0.05)

    predicted = "llamacpp:tokens_predicted_total "
    until_idle(runner)
    before = _metric(runner, predicted)
    assert runner.post("/completion", prompt="Hello", n_predict=2).status_code == 200
    assert _metric(runner, predicted) - before <= 2


def _metric(server, name):
    lines = server.http.get("/metrics").text.splitlines()
    return float(next(line for line in lines if line.startswith(name)).split()[1])


def test_two_requests_at_once_both_get_their_own_answer(runner):
    bodies = [
        {"prompt": LINES, "n_predict": 32, "temperature": 0},
        {"prompt": ESSAY, "n_predict": 32, "temperature": 0},
    ]
    alone = [runner.post("/completion", **body).json()["content"] for body in bodies]
    together: list[str] = ["", ""]

    def ask(index):
        answer = httpx.post(f"http://127.0.0.1:{runner.port}/completion", json=bodies[index], timeout=120)
        together[index] = answer.json()["content"]

    threads = [threading.Thread(target=ask, args=(index,)) for index in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert together == alone


def test_image_data_gets_a_clear_error_and_the_runner_lives(runner):
    answer = runner.post("/completion", prompt={"prompt_string": "<img>", "multimodal_data": ["aGk="]})
    assert (answer.status_code, answer.json()["error"]["type"]) == (501, "not_supported_error")
    assert runner.http.get("/health").status_code == 200


def test_a_prompt_beyond_the_context_is_refused(runner):
    answer = runner.post("/completion", prompt="word " * 3000, n_predict=4)
    error = answer.json()["error"]
    assert (answer.status_code, error["type"], error["n_ctx"]) == (400, "exceed_context_size_error", 2048)
    assert error["n_prompt_tokens"] > 3000


def test_the_official_openai_client(runner):
    client = openai.OpenAI(base_url=f"http://127.0.0.1:{runner.port}/v1", api_key="none")
    messages = [{"role": "user", "content": "Say hi."}]
    whole = client.chat.completions.create(
        model="any", messages=messages, max_tokens=8, temperature=0, logprobs=True, top_logprobs=2
    )
    chunks = list(
        client.chat.completions.create(
            model="any",
            messages=messages,
            max_tokens=8,
            temperature=0,
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    text = client.completions.create(model="any", prompt="The capital of France is", max_tokens=2, temperature=0)

    streamed = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert streamed == whole.choices[0].message.content
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert len(whole.choices[0].logprobs.content) == whole.usage.completion_tokens
    assert len(whole.choices[0].logprobs.content[0].top_logprobs) == 2
    assert text.choices[0].text == " Paris."
    assert [model.owned_by for model in client.models.list()] == ["pilotfish"]
    tool = {"type": "function", "function": {"name": "f", "parameters": {}}}
    with pytest.raises(openai.APIStatusError, match="tools"):
        client.chat.completions.create(model="any", messages=messages, tools=[tool])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_cleanly_in_mid_answer(smollm2_path, state, tmp_path, number):
    with running(RUNNER, smollm2_path, tmp_path / "log", *SETTINGS, env=state) as server:
        with server.http.stream("POST", "/completion", json={"prompt": ESSAY, "stream": True}) as response:
            next(response.iter_lines())
            server.process.send_signal(number)
            assert server.process.wait(60) == 0
        with pytest.raises(httpx.TransportError):
            server.http.get("/health")


def test_a_signal_ends_it_while_it_loads(smollm2_path, state, tmp_path):
    server = spawn(RUNNER, smollm2_path, tmp_path / "log", *SETTINGS, env=state)

    def listening():
        assert server.process.poll() is None
        return "listening" in server.log.read_text()

    wait_until(listening, "it does not listen")
    server.process.terminate()
    assert server.process.wait(60) == 0


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--lora", "adapter.gguf"), "--lora: LoRA adapters and control vectors are not applied here"),
        (("--embedding",), "--embedding: embeddings and reranking are not served here"),
        (("--no-such-flag",), "--no-such-flag"),
    ],
)
def test_a_launch_that_is_not_for_it_ends_it_with_1_and_a_reason(smollm2_path, state, tmp_path, flags, says):
    server = spawn(RUNNER, smollm2_path, tmp_path / "log", *flags, env=state)
    assert server.process.wait(60) == 1
    assert says in server.log.read_text()


def test_a_model_that_cannot_be_loaded_ends_it_with_1_and_a_reason(state, tmp_path):
    model = tmp_path / "broken.gguf"
    model.write_bytes(b"GGUF" + bytes(100))
    server = spawn(RUNNER, model, tmp_path / "log", *SETTINGS, env=state)
    assert server.process.wait(60) == 1
    log = server.log.read_text()
    assert "cannot load" in log
    assert "broken.gguf" in log
    assert "Traceback" not in log


def test_a_taken_port_ends_it_with_1_and_a_reason(smollm2_path, state, tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        server = spawn(RUNNER, smollm2_path, tmp_path / "log", "--port", str(taken.getsockname()[1]), env=state)
        assert server.process.wait(60) == 1
    assert "choose another --port" in server.log.read_text()
