"""`/api/generate` and `/api/chat` as a client sees them."""

from __future__ import annotations

import json
import re

import pytest

from tests.daemon.front.tiny_models import write_gguf

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture
def front(shared_front):
    return shared_front


PROMPT = {"model": "tiny", "prompt": "echo:one two three"}
CHAT = {"model": "tiny", "messages": [{"role": "user", "content": "echo:one two three"}]}


async def test_a_stream_is_lines_of_json_and_ends_with_the_figures(front):
    *pieces, last = await front.lines("/api/generate", PROMPT)
    assert "".join(piece["response"] for piece in pieces) == "one two three"
    assert not any(piece["done"] for piece in pieces)
    assert last["done"] is True
    assert last["response"] == ""
    assert last["done_reason"] == "stop"
    assert last["eval_count"] == len(pieces)
    assert last["prompt_eval_count"] == len("<user>echo:one two three\n<assistant>")  # cache_n + prompt_n
    assert last["prompt_eval_duration"] == 3_000_000
    assert last["eval_duration"] == 5_000_000
    assert last["total_duration"] >= last["load_duration"] > 0
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{1,9}Z", last["created_at"])


async def test_without_stream_the_same_text_comes_in_one_object(front):
    async with front.post("/api/generate", {**PROMPT, "stream": False}) as response:
        assert response.headers["Content-Type"] == "application/json; charset=utf-8"
        answer = await response.json()
    assert answer["response"] == "one two three"
    assert answer["done_reason"] == "stop"


async def test_chat_puts_its_text_in_a_message(front):
    *pieces, last = await front.lines("/api/chat", CHAT)
    assert "".join(piece["message"]["content"] for piece in pieces) == "one two three"
    assert {piece["message"]["role"] for piece in [*pieces, last]} == {"assistant"}
    status, answer = await front.ask("/api/chat", {**CHAT, "stream": False})
    assert (status, answer["message"]) == (200, {"role": "assistant", "content": "one two three"})
    assert "context" not in answer


async def test_context_holds_the_exact_ids_and_continues_them(front):
    _, first = await front.ask("/api/generate", {**PROMPT, "stream": False})
    rendered = b"<user>echo:one two three\n<assistant>"
    assert bytes(first["context"]) == rendered + b"one two three"
    _, second = await front.ask("/api/generate", {**PROMPT, "stream": False, "context": first["context"]})
    assert bytes(front.journal_of("completion")[1]["body"]["prompt"]) == rendered + b"one two three" + rendered
    assert second["context"][: len(first["context"])] == first["context"]


async def test_raw_sends_the_prompt_as_it_is_and_has_no_context(front):
    _, answer = await front.ask("/api/generate", {**PROMPT, "raw": True, "stream": False})
    assert front.journal_of("completion")[0]["body"]["prompt"] == "echo:one two three"
    assert answer["response"] == "one two three"
    assert "context" not in answer


async def test_pilotfish_figures_are_passed_on_and_ids_on_request(front):
    *pieces, last = await front.lines("/api/generate", {**PROMPT, "options": {"return_tokens": True}})
    tokens = last["pilotfish"].pop("tokens")
    assert bytes(tokens) == b"one two three"
    figures = {"parity": "lane", "lane": "bf16/f16", "speculated": True, "draft_n": 6, "draft_n_accepted": 4}
    assert last["pilotfish"] == figures
    assert [piece.get("pilotfish") for piece in pieces] == [None, {"drafted": 4}, None, {"drafted": 1}]


async def test_the_plain_path_is_one_option_away(front):
    _, answer = await front.ask("/api/generate", {**PROMPT, "stream": False, "options": {"speculate": False}})
    assert front.journal_of("completion")[0]["body"]["speculate"] is False
    assert answer["pilotfish"]["speculated"] is False


async def test_options_reach_the_runner_request_over_params_over_defaults(front):
    messages = [{"role": "user", "content": "echo:x"}]
    await front.ask("/api/chat", {"model": "other:v2", "messages": messages, "stream": False, "options": {"seed": 7}})
    body = front.journal_of("completion")[0]["body"]
    assert body["seed"] == 7
    assert body["stop"] == ["##"]  # the manifest's params
    defaults = {"temperature": 0.8, "top_k": 40, "top_p": 0.9, "min_p": 0.0, "repeat_penalty": 1.0}
    assert {key: body[key] for key in defaults} == defaults
    assert body["n_predict"] == 10 * 4096  # as Ollama limits an answer without a budget
    assert bytes(body["prompt"]).startswith(b"<system>Be brief.\n<user>echo:x")


async def test_a_system_message_replaces_the_models_own(front):
    await front.ask("/api/generate", {"model": "other:v2", "prompt": "echo:x", "system": "Rhyme.", "stream": False})
    assert bytes(front.journal_of("completion")[0]["body"]["prompt"]).startswith(b"<system>Rhyme.\n<user>")


async def test_the_token_budget_ends_with_length(front):
    _, answer = await front.ask("/api/generate", {**PROMPT, "stream": False, "options": {"num_predict": 1}})
    assert (answer["response"], answer["done_reason"], answer["eval_count"]) == ("one ", "length", 1)


@pytest.mark.parametrize("budget", [-1, -2, -(2**40), 10**9])
async def test_a_budget_below_zero_or_beyond_is_ten_contexts(front, budget):
    _, answer = await front.ask(
        "/api/generate", {**PROMPT, "stream": False, "options": {"num_predict": budget, "num_ctx": 512}}
    )
    assert front.journal_of("completion")[0]["body"]["n_predict"] == 5120
    assert (answer["response"], answer["done_reason"]) == ("one two three", "stop")


@pytest.mark.parametrize(
    ("path", "model", "said"),
    [
        ("/api/generate", "tiny", "one two three"),  # Ollama renders prompts itself, and leaves a 0 out
        ("/api/chat", "templated", "one two three"),  # and so it does where the model has a template of its own
        ("/api/chat", "tiny", ""),  # llama-server renders these, and is told 0
    ],
)
async def test_a_budget_of_zero_is_what_it_is_in_ollama(own_front, store, tmp_path, path, model, said):
    front = own_front
    store.add_gguf("templated", write_gguf(tmp_path / "templated.gguf", salt=3), template="{{ .Prompt }} ")
    asked = {"messages": [{"role": "user", "content": PROMPT["prompt"]}], "prompt": PROMPT["prompt"]}
    options = {"num_predict": 0, "typical_p": 0, "num_keep": 0, "top_k": 0, "repeat_last_n": -1}
    _, answer = await front.ask(path, {"model": model, **asked, "stream": False, "options": options})
    assert (answer.get("response", answer.get("message", {}).get("content"))) == said
    body = front.journal_of("completion")[0]["body"]
    assert (body["n_predict"], body["typical_p"]) == ((-1, 1.0) if said else (0, 0.0))
    assert (body["n_keep"], body["top_k"], body["repeat_last_n"]) == (0, 0, -1)


@pytest.mark.parametrize(
    ("form", "schema"),
    [("json", {"type": "object"}), ({"type": "integer"}, {"type": "integer"}), ("", None), (None, None)],
)
async def test_format_becomes_a_schema(front, form, schema):
    status, _ = await front.ask("/api/generate", {**PROMPT, "stream": False, "format": form})
    assert status == 200
    assert front.journal_of("completion")[0]["body"].get("json_schema") == schema


async def test_logprobs_as_ollama_shows_them(front):
    *pieces, last = await front.lines("/api/generate", {**PROMPT, "logprobs": True, "top_logprobs": 2})
    assert pieces[0]["logprobs"] == [
        {
            "token": "one ",
            "logprob": -0.5,
            "top_logprobs": [{"token": "t0", "logprob": -1.0}, {"token": "t1", "logprob": -2.0}],
        }
    ]
    assert "logprobs" not in last
    _, answer = await front.ask("/api/generate", {**PROMPT, "logprobs": True, "stream": False})
    assert [entry["token"] for entry in answer["logprobs"]] == ["one ", "two ", "thre", "e"]
    assert all("top_logprobs" not in entry for entry in answer["logprobs"])


async def test_control_characters_are_escaped_and_other_text_is_utf8(front):
    said = "tab\there é\u2028\x01\x7f😊"
    body = {"model": "tiny", "prompt": f"echo:{said}", "raw": True}
    async with front.post("/api/generate", body) as response:
        raw = await response.read()
    assert b"\\t" in raw
    assert b"\\u0001" in raw
    assert "é".encode() in raw
    lines = raw.decode().split("\n")
    assert "".join(json.loads(line)["response"] for line in lines if line) == said


async def test_an_empty_prompt_loads_and_keep_alive_zero_unloads(own_front):
    for path, empty in (("/api/generate", {"model": "tiny"}), ("/api/chat", {"model": "tiny", "messages": []})):
        _, loaded = await own_front.ask(path, empty)
        assert (loaded["done"], loaded["done_reason"]) == (True, "load")
        assert [entry["name"] for entry in (await own_front.get("/api/ps"))["models"]] == ["tiny:latest"]
        _, unloaded = await own_front.ask(path, {**empty, "keep_alive": 0})
        assert (unloaded["done"], unloaded["done_reason"]) == (True, "unload")
        assert (await own_front.get("/api/ps"))["models"] == []


async def test_a_model_without_template_reads_the_prompt_as_it_is(front):
    await front.ask("/api/generate", {"model": "bare", "prompt": "echo:x", "system": "unseen", "stream": False})
    assert bytes(front.journal_of("completion")[0]["body"]["prompt"]) == b"echo:x"


async def test_the_rendered_prompt_can_be_had_instead_of_an_answer(front):
    _, answer = await front.ask("/api/chat", {**CHAT, "_debug_render_only": True})
    assert answer["_debug_info"] == {"rendered_template": "<user>echo:one two three\n<assistant>"}
    assert front.journal_of("completion") == []


async def test_old_turns_are_dropped_until_the_chat_fits(front):
    turns = [{"role": "user" if i % 2 == 0 else "assistant", "content": f"turn {i} " + "x" * 40} for i in range(6)]
    messages = [{"role": "system", "content": "Keep me."}, *turns, {"role": "user", "content": "echo:done"}]
    body = {"model": "tiny", "messages": messages, "stream": False, "options": {"num_ctx": 150}}
    status, answer = await front.ask("/api/chat", body)
    assert (status, answer["message"]["content"]) == (200, "done")
    prompt = bytes(front.journal_of("completion")[0]["body"]["prompt"]).decode()
    assert prompt.startswith("<system>Keep me.\n<assistant>turn 5 ")
    assert prompt.endswith("<user>echo:done\n<assistant>")


@pytest.mark.parametrize("flags", [(), ("--alternating",)])
async def test_as_many_turns_stay_as_fit_and_few_are_tried(start, flags):
    async with start(*flags) as front:
        for count in (*range(1, 9), 200):
            turns = [
                {"role": ("user", "assistant")[i % 2], "content": f"{i:03} {'x' * 30}"} for i in range(count // 2 * 2)
            ]
            body = {"model": "tiny", "messages": [*turns, {"role": "user", "content": "echo:done"}], "stream": False}
            front.journal.unlink(missing_ok=True)
            status, _ = await front.ask("/api/chat", {**body, "options": {"num_ctx": 250}})
            prompt = bytes(front.journal_of("completion")[0]["body"]["prompt"]).decode()
            texts = [f"<{turn['role']}>{turn['content']}\n" for turn in turns]
            end = "<user>echo:done\n<assistant>"
            wanted = ("".join(texts[start:]) + end for start in range(0, count + 1, 2 if flags else 1))
            assert (count, status, prompt) == (count, 200, next(text for text in wanted if len(text) < 250))
            assert len(front.journal_of("template")) <= 1 + 2 * (count.bit_length() + 1)


async def test_a_template_that_wants_alternating_turns_survives_truncation(start):
    turns = [{"role": "user" if i % 2 == 0 else "assistant", "content": f"turn {i} " + "x" * 40} for i in range(4)]
    messages = [*turns, {"role": "user", "content": "echo:done"}]
    body = {"model": "tiny", "messages": messages, "stream": False, "options": {"num_ctx": 100}}
    async with start("--alternating") as front:
        status, _ = await front.ask("/api/chat", body)
        assert status == 200
        assert bytes(front.journal_of("completion")[0]["body"]["prompt"]).startswith(b"<user>echo:done")


LONG = "".join(f"{number:03} " for number in range(100))  # 400 tokens, in this runner


def long(path, **fields):
    """A request of 400 tokens and more for a context of 64."""
    asked = {"messages": [{"role": "user", "content": LONG}]} if path.endswith("chat") else {"prompt": LONG}
    return {
        "model": "tiny",
        "stream": False,
        "options": {"num_ctx": 64, **fields.pop("options", {})},
        **asked,
        **fields,
    }


@pytest.mark.parametrize("path", ["/api/generate", "/api/chat"])
@pytest.mark.parametrize(
    ("options", "kept", "length"),
    [
        ({}, 4, 34),
        ({"num_keep": 0}, 0, 32),
        ({"num_keep": 24}, 24, 44),
        ({"num_keep": 62}, 62, 63),
        ({"num_keep": 9999}, 63, 63),
        ({"num_keep": -1}, 63, 63),
    ],
)
async def test_a_prompt_longer_than_the_context_keeps_its_beginning_and_its_end(front, path, options, kept, length):
    status, answer = await front.ask(path, long(path, options=options))
    whole = f"<user>{LONG}\n<assistant>".encode()
    rest = length - kept
    assert (status, answer["prompt_eval_count"]) == (200, length)  # ollama: num_ctx - (num_ctx - num_keep) / 2
    assert bytes(front.journal_of("completion")[0]["body"]["prompt"]) == whole[:kept] + whole[len(whole) - rest :]


async def test_a_bos_is_kept_besides(start):
    async with start("--bos") as front:
        _, answer = await front.ask("/api/generate", long("/api/generate"))
        prompt = bytes(front.journal_of("completion")[0]["body"]["prompt"])
    assert answer["prompt_eval_count"] == len(prompt) == 64 - (64 - 5) // 2
    assert prompt.startswith(b"\x01<use")


async def test_raw_prompts_and_old_contexts_are_shortened_alike(front):
    _, raw = await front.ask("/api/generate", long("/api/generate", raw=True))
    context = list(LONG.encode())
    _, continued = await front.ask("/api/generate", long("/api/generate", prompt="echo:x", context=context))
    assert raw["prompt_eval_count"] == continued["prompt_eval_count"] == 34
    first, second = (bytes(entry["body"]["prompt"]) for entry in front.journal_of("completion"))
    assert (first, second[:4], second[-17:]) == (
        (LONG[:4] + LONG[-30:]).encode(),
        LONG[:4].encode(),
        b"echo:x\n<assistant>"[-17:],
    )
    assert bytes(continued["context"]) == second + b"x"


@pytest.mark.parametrize("path", ["/api/generate", "/api/chat"])
@pytest.mark.parametrize("fields", [{"shift": False}, {"truncate": False}, {"shift": True, "truncate": False}])
@pytest.mark.parametrize("stream", [True, False])
async def test_a_prompt_that_may_not_be_shortened_is_refused_with_both_counts(front, path, fields, stream):
    status, answer = await front.ask(path, {**long(path, **fields), "stream": stream})
    assert status == 400
    assert f"request ({len(LONG) + len('<user>') + len('<assistant>') + 1} tokens)" in answer["error"]
    assert "context size (64 tokens)" in answer["error"]
    assert front.journal_of("completion") == []


async def test_a_kind_of_model_that_cannot_shift_refuses_unless_told_otherwise(own_front, store, tmp_path):
    store.add_gguf("deep", write_gguf(tmp_path / "deep.gguf", architecture="deepseek2"))
    refused, _ = await own_front.ask("/api/generate", {**long("/api/generate"), "model": "deep"})
    told, _ = await own_front.ask("/api/generate", {**long("/api/generate", shift=True), "model": "deep"})
    assert (refused, told) == (400, 200)


@pytest.mark.parametrize("path", ["/api/generate", "/api/chat"])
@pytest.mark.parametrize(("fields", "shifts"), [({}, True), ({"shift": False}, False), ({"truncate": False}, True)])
async def test_a_full_context_forgets_unless_the_request_says_no(front, path, fields, shifts):
    asked = {"messages": [{"role": "user", "content": "echo:x"}]} if path == "/api/chat" else {"prompt": "echo:x"}
    status, _ = await front.ask(path, {"model": "tiny", **asked, **fields, "stream": False, "options": {"num_keep": 9}})
    body = front.journal_of("completion")[0]["body"]
    assert (status, body["context_shift"], body["n_keep"]) == (200, shifts, 9)


@pytest.mark.parametrize("role", ["system", "developer", "Developer"])
async def test_whoever_says_how_to_answer_replaces_the_models_own_system_message(front, role):
    messages = [{"role": role, "content": "Rhyme."}, {"role": "user", "content": "echo:x"}]
    await front.ask("/api/chat", {"model": "other:v2", "messages": messages, "stream": False})
    prompt = bytes(front.journal_of("completion")[0]["body"]["prompt"]).decode()
    assert prompt == f"<{role.lower()}>Rhyme.\n<user>echo:x\n<assistant>"


async def test_developers_stay_when_old_turns_are_dropped(front):
    turns = [{"role": "user", "content": "x" * 60} for _ in range(3)]
    messages = [{"role": "developer", "content": "Keep me."}, *turns, {"role": "user", "content": "echo:done"}]
    body = {"model": "tiny", "messages": messages, "stream": False, "options": {"num_ctx": 100}}
    await front.ask("/api/chat", body)
    prompt = bytes(front.journal_of("completion")[0]["body"]["prompt"]).decode()
    assert prompt == "<developer>Keep me.\n<user>echo:done\n<assistant>"


async def test_a_model_without_template_has_no_place_for_developers_either(front):
    messages = [{"role": "developer", "content": "unseen"}, {"role": "user", "content": "echo:x"}]
    await front.ask("/api/chat", {"model": "bare", "messages": messages, "stream": False})
    assert bytes(front.journal_of("completion")[0]["body"]["prompt"]) == b"echo:x"
