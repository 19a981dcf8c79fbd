"""Other clients than the Python one, requests that only stock serves, and our own front beside the real Ollama."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import openai
import psutil
import pytest

from pilotfish.daemon.front import FrontSettings
from pilotfish.daemon.front import running as front_running
from pilotfish.manifests.names import ModelName
from pilotfish.manifests.store import Store
from tests.e2e.ollama_server import BARE, CONTEXT, GREEDY, MODEL, SEEDED
from tests.e2e.same_in_both import SAME_IN_BOTH, answers_of
from tests.long_forms import every_kind_once
from tests.waiting import is_gone, wait_until

pytestmark = [pytest.mark.ollama, pytest.mark.model, pytest.mark.timeout(300)]

HERE = Path(__file__).parent
TOOLS = "tools"  # a model whose chat template knows tools, so that Ollama hands them to llama-server
LINES = "Write ten lines, each starting with Alpha."
MESSAGES = [{"role": "user", "content": LINES}]
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather in a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
DOG = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "legs": {"type": "integer", "minimum": 2, "maximum": 8}},
    "required": ["name", "legs"],
}


def asked_before(city):
    call = {"function": {"name": "weather", "arguments": {"city": city}}}
    return [
        {"role": "user", "content": f"Weather in {city}?"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
    ]


# After three examples even a small model calls the function.
CONVERSATION = [
    *(message for city in ("London", "Rome", "Oslo") for message in asked_before(city)),
    {"role": "user", "content": "Weather in Paris?"},
]


@pytest.fixture(scope="session")
def tools_model(models, folder, smollm2_path):
    """SmolLM2 with another chat template, in the store of the servers."""
    path = folder / "tools.gguf"
    template = (HERE / "tools_template.jinja").read_text()
    command = [sys.executable, "-m", "gguf.scripts.gguf_new_metadata", "--chat-template", template, smollm2_path, path]
    subprocess.run(command, check=True, capture_output=True)
    params = {"num_ctx": CONTEXT, "num_thread": 1, "stop": ["<|im_end|>"]}
    Store(models).add_gguf(ModelName.parse(TOOLS), path, params=params)
    return TOOLS


def is_idle(server):
    return not server.runner().get("/slots").json()[0]["is_processing"]


def test_the_javascript_client_generates_chats_and_streams(overlaid, javascript):
    request = {"model": MODEL, "options": SEEDED}
    (generated,) = javascript(overlaid, "generate", {**request, "prompt": LINES})
    (chatted,) = javascript(overlaid, "chat", {**request, "messages": MESSAGES})
    parts = javascript(overlaid, "chat", {**request, "messages": MESSAGES, "stream": True})

    assert generated["response"] == overlaid.client.generate(MODEL, LINES, options=SEEDED).response
    assert "".join(part["message"]["content"] for part in parts) == chatted["message"]["content"]
    assert parts[-1]["done_reason"] == chatted["done_reason"] == "length"
    assert (parts[-1]["eval_count"], chatted["eval_count"]) == (48, 48)


def test_the_javascript_client_leaves_in_mid_stream(overlaid, javascript):
    request = {"model": MODEL, "prompt": LINES, "stream": True, "options": {**GREEDY, "num_predict": 1500}}
    parts = javascript(overlaid, "generate", request, leave_after=3)

    assert len([part for part in parts if "response" in part]) < 100
    assert parts[-1] == {"error": "AbortError"}
    wait_until(lambda: is_idle(overlaid), "it still generates")


def test_curl_gets_a_stream_of_lines(overlaid):
    body = json.dumps({"model": MODEL, "prompt": LINES, "options": SEEDED})
    command = ["curl", "--silent", "--no-buffer", f"{overlaid.url}/api/generate", "--data", body]
    output = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    parts = [json.loads(line) for line in output.splitlines()]

    assert (
        "".join(part["response"] for part in parts) == overlaid.client.generate(MODEL, LINES, options=SEEDED).response
    )
    assert [part["done"] for part in parts].index(True) == len(parts) - 1


def test_curl_killed_in_mid_stream_frees_the_model(overlaid):
    body = json.dumps({"model": MODEL, "prompt": LINES, "options": {**GREEDY, "num_predict": 1500}})
    command = ["curl", "--silent", "--no-buffer", f"{overlaid.url}/api/generate", "--data", body]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as curl:
        assert b'"done":false' in curl.stdout.readline()
        curl.send_signal(signal.SIGKILL)

    wait_until(lambda: is_idle(overlaid), "it still generates")


def test_the_openai_client_chats_streams_and_completes(overlaid):
    client = openai.OpenAI(base_url=f"{overlaid.url}/v1", api_key="none")
    wish = {"model": MODEL, "max_tokens": 24, "temperature": 0, "seed": 1}
    whole = client.chat.completions.create(messages=MESSAGES, **wish)
    chunks = list(
        client.chat.completions.create(messages=MESSAGES, stream=True, stream_options={"include_usage": True}, **wish)
    )
    text = client.completions.create(prompt="The capital of France is", **wish)

    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == whole.choices[0].message.content
    assert chunks[-1].usage == whole.usage
    assert whole.choices[0].finish_reason == "length"
    assert "Paris" in text.choices[0].text


def test_the_same_request_twice_counts_the_same_prompt(overlaid):
    answers = [overlaid.client.generate(MODEL, LINES, options={**GREEDY, "num_predict": 4}) for _ in range(2)]
    assert answers[0].prompt_eval_count == answers[1].prompt_eval_count > 10


@pytest.mark.parametrize(
    ("model", "wanted"),
    every_kind_once({MODEL: MODEL, BARE: BARE}, {"schema": DOG, "json": "json"}, others=pytest.mark.long),
)
def test_structured_output_is_stocks(overlaid, stock, model, wanted):
    messages = [{"role": "user", "content": "Describe a dog as JSON, with its name and legs."}]
    options = {**GREEDY, "num_predict": 64}
    ours, theirs = (server.client.chat(model, messages, format=wanted, options=options) for server in (overlaid, stock))

    assert ours.message.content == theirs.message.content
    assert (ours.eval_count, ours.done_reason) == (theirs.eval_count, theirs.done_reason)
    assert ours.message.content.lstrip().startswith("{")


def runner_process(server):
    """The process that Ollama started for the model loaded last."""
    return max(psutil.Process(server.process.pid).children(), key=lambda process: process.create_time())


def stock_servers(runner):
    """The stock servers beside a runner; the process that renders its chat templates is none."""
    return [child for child in runner.children() if "--port" in child.cmdline()]


def test_tools_are_called_as_in_stock_and_without_a_second_copy_of_the_model(overlaid, stock, tools_model, javascript):
    options = {"temperature": 0, "num_predict": 48}
    overlaid.unload()
    plain = overlaid.client.chat(tools_model, MESSAGES, options=options)
    runner = runner_process(overlaid)
    assert overlaid.decisions()[-1]["decision"] == "runner"

    def call(server):
        return server.client.chat(tools_model, CONVERSATION, tools=[WEATHER], options=options)

    ours = call(overlaid)
    streamed = javascript(
        overlaid,
        "chat",
        {"model": tools_model, "messages": CONVERSATION, "tools": [WEATHER], "options": options, "stream": True},
    )
    client = openai.OpenAI(base_url=f"{overlaid.url}/v1", api_key="none")
    answer = client.chat.completions.create(
        model=tools_model, messages=_for_openai(CONVERSATION), tools=[WEATHER], temperature=0, max_tokens=48
    )
    theirs = call(stock)

    assert stock_servers(runner) == [], "no stock server without need"
    assert _calls(ours) == _calls(theirs) == [("weather", {"city": "Paris"})]
    assert (ours.eval_count, ours.prompt_eval_count, ours.done_reason) == (
        theirs.eval_count,
        theirs.prompt_eval_count,
        theirs.done_reason,
    )
    (called,) = [call for part in streamed for call in part["message"].get("tool_calls", [])]
    assert (called["function"]["name"], called["function"]["arguments"]) == ("weather", {"city": "Paris"})
    (asked,) = answer.choices[0].message.tool_calls
    assert (asked.function.name, json.loads(asked.function.arguments)) == ("weather", {"city": "Paris"})
    assert plain.message.content == stock.client.chat(tools_model, MESSAGES, options=options).message.content


def test_a_structured_chat_is_relayed_and_the_server_beside_goes_with_its_runner(overlaid, stock, tools_model):
    options = {"temperature": 0, "num_predict": 48}
    overlaid.unload()
    ours, theirs = (
        server.client.chat(tools_model, MESSAGES, format=DOG, options=options) for server in (overlaid, stock)
    )
    (beside,) = stock_servers(runner_process(overlaid))
    assert Path(beside.exe()).name == "llama-server"
    assert ours.message.content == theirs.message.content

    overlaid.unload()  # which kills the runner, and leaves it no time to end what it started
    wait_until(lambda: is_gone(beside), "it was left behind")


def _calls(answer):
    return [(call.function.name, dict(call.function.arguments)) for call in answer.message.tool_calls or ()]


def _for_openai(messages):
    """OpenAI's form: arguments as text, and an id for every call."""
    converted = []
    for message in messages:
        calls = [
            {"id": "c", "type": "function", "function": {**f, "arguments": json.dumps(f["arguments"])}}
            for f in (call["function"] for call in message.get("tool_calls", ()))
        ]
        converted.append({**message, "tool_calls": calls} if calls else message)
    return converted


def test_a_client_that_leaves_a_relayed_stream_ends_it(overlaid, tools_model):
    stream = overlaid.client.chat(
        tools_model,
        MESSAGES,
        format={"type": "array", "items": {"type": "string"}, "minItems": 400},
        options={"temperature": 0, "num_predict": 1500, "stop": ["nothing like this"]},
        stream=True,
    )
    next(iter(stream))
    (beside,) = stock_servers(runner_process(overlaid))
    port = beside.cmdline()[beside.cmdline().index("--port") + 1]
    stream.close()

    def beside_is_idle():
        slots = httpx.get(f"http://127.0.0.1:{port}/slots").json()
        return not any(slot["is_processing"] for slot in slots)

    wait_until(beside_is_idle, "the stock server still generates")


async def test_the_front_answers_as_the_real_server_does(overlaid, models):
    async with front_running(Store(models), FrontSettings(port=0)) as settings:
        ours = await answers_of(settings.url, SAME_IN_BOTH)
    theirs = await answers_of(overlaid.url, SAME_IN_BOTH)

    assert [(mine, other) for mine, other in zip(ours, theirs, strict=True) if mine != other] == []
