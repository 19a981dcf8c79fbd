"""What a client sees when it, the model or the runner is at fault. The process lives on in every case."""

from __future__ import annotations

import json

import pytest

from pilotfish.daemon.front.options import MAX_WARNINGS
from pilotfish.manifests.store import Store

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture
def front(shared_front):
    return shared_front


OK = {"model": "tiny", "prompt": "echo:fine", "stream": False}
HI = {"role": "user", "content": "hi"}


@pytest.mark.parametrize("path", ["/api/generate", "/api/chat"])
@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "missing request body"),
        (b"{", "the request body is not valid JSON: "),
        (b'{"a": NaN}', "the request body is not valid JSON: NaN"),
        (b"[" * 100_000, "the request body is not valid JSON: "),
        (b"\xff\xfe", "the request body is not valid JSON: "),
        (b'["tiny"]', "the request body must be a JSON object"),
        (b'{"model": 5}', "model must be a string, got 5"),
        (b'{"model": "tiny", "stream": "yes"}', 'stream must be a boolean, got "yes"'),
        (b'{"model": "tiny", "options": []}', "options must be an object, got []"),
        (b'{"model": "tiny", "keep_alive": "-1"}', 'time: missing unit in duration "-1"'),
        (b'{"model": "tiny", "keep_alive": true}', "keep_alive must be a number of seconds"),
        (b'{"model": "tiny", "keep_alive": ' + b"9" * 400 + b"}", "keep_alive must be a finite number"),
        (b'{"model": "tiny", "keep_alive": "' + b"1s" * 200_000 + b'"}', 'time: invalid duration "1s1s'),
        (b'{"model": "tiny", "context": ' + b"9" * 5000 + b"}", "more than 4300 digits"),
        (b'{"model": "tiny", "think": "very"}', 'invalid think value: "very" (must be "high"'),
        (b'{"model": "tiny", "format": "xml"}', 'invalid format: "xml"; expected "json"'),
        (b'{"model": "tiny", "top_logprobs": 21}', "top_logprobs must be between 0 and 20"),
        (b'{"model": ""}', "model is required"),
        (b'{"model": "a/b/c/d/e"}', "invalid model name"),
        (b'{"model": "../../etc/passwd"}', "invalid model name"),
    ],
)
async def test_a_bad_body_is_a_400_that_names_the_fault(front, path, raw, message):
    async with front.post(path, data=raw) as response:
        answer = json.loads(await response.text())
        assert (response.status, list(answer)) == (400, ["error"])
        assert message in answer["error"]
    assert (await front.ask("/api/generate", OK))[0] == 200


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": "hot"}, 'option "temperature" must be of type float32'),
        ({"seed": "x"}, 'option "seed" must be of type integer'),
        ({"seed": True}, 'option "seed" must be of type integer'),
        ({"stop": "x"}, 'option "stop" must be of type array'),
        ({"stop": [1]}, 'option "stop" must be of an array of strings'),
        ({"use_mmap": 1}, 'option "use_mmap" must be of type boolean'),
        ({"num_ctx": 2**31}, f'option "num_ctx" must be between {-(2**31)} and {2**31 - 1}, got {2**31}'),
        ({"num_batch": 2**21}, f'option "num_batch" must be between {-(2**31)} and {2**20}, got {2**21}'),
        ({"num_thread": 5000}, f'option "num_thread" must be between {-(2**31)} and 4096, got 5000'),
        ({"seed": 2**63}, f'option "seed" must be between {-(2**63)} and {2**63 - 1}, got {2**63}'),
        *(({name: 10**400}, f'option "{name}" must be a finite number') for name in ("num_predict", "seed", "top_p")),
    ],
)
async def test_an_option_of_the_wrong_type_is_a_400(front, options, message):
    status, answer = await front.ask("/api/generate", {**OK, "options": options})
    assert (status, answer) == (400, {"error": message})


async def test_an_option_too_large_for_a_number_is_a_400(front):
    async with front.post(
        "/api/generate", data=b'{"model": "tiny", "prompt": "x", "options": {"top_p": 1e999}}'
    ) as got:
        assert (got.status, await got.json()) == (400, {"error": 'option "top_p" must be a finite number'})


async def test_an_unknown_option_is_logged_with_the_nearest_known_one(front, caplog):
    status, _ = await front.ask("/api/generate", {**OK, "options": {"temprature": 1, "seed": None}})
    assert status == 200
    assert "invalid option \"temprature\" is ignored; did you mean 'temperature'?" in caplog.text


async def test_a_multitude_of_unknown_options_is_told_in_a_few_lines(front, caplog):
    options = {f"temperatur{i}": 1 for i in range(50_000)} | {"x" * 10**6: 1}
    assert (await front.ask("/api/generate", {**OK, "options": options}))[0] == 200
    assert caplog.text.count("did you mean 'temperature'?") == MAX_WARNINGS
    assert f"{50_001 - MAX_WARNINGS} more invalid options are ignored" in caplog.text


@pytest.mark.parametrize(
    ("raw", "prompt"),
    [
        (b'{"model": "tiny", "raw": true, "stream": false, "prompt": "echo:caf\xe9"}', "echo:caf\ufffd"),
        (b'\xef\xbb\xbf{"model": "tiny", "raw": true, "stream": false, "prompt": "echo:a"}', "echo:a"),
        (rb'{"model": "tiny", "raw": true, "stream": false, "prompt": "echo:\ud83d\u0000"}', "echo:\ufffd\0"),
    ],
)
async def test_text_that_ollama_can_read_is_read(front, raw, prompt):
    async with front.post("/api/generate", data=raw) as response:
        assert response.status == 200
    assert front.journal_of("completion")[0]["body"]["prompt"] == prompt


async def test_half_a_character_in_a_message_a_system_text_or_a_stop_string_is_replaced(front):
    half = "\ud83d"
    chat = {"model": "tiny", "messages": [{"role": "user", "content": f"echo:a{half}"}], "stream": False}
    assert (await front.ask("/api/chat", {**chat, "options": {"stop": [half]}}))[1]["message"]["content"] == "a\ufffd"
    assert (await front.ask("/api/generate", {**OK, "system": half}))[0] == 200
    chat_body, generate_body = (entry["body"] for entry in front.journal_of("completion"))
    assert chat_body["stop"] == ["\ufffd"]
    assert "<system>\ufffd" in bytes(generate_body["prompt"]).decode()


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("/api/generate", {**OK, "think": True}, '"tiny" does not support thinking'),
        ("/api/chat", {"model": "tiny", "think": "high"}, '"tiny" does not support thinking'),
        ("/api/generate", {**OK, "suffix": "x"}, "registry.ollama.ai/library/tiny:latest does not support insert"),
        ("/api/generate", {**OK, "images": ["aGk="]}, "registry.ollama.ai/library/tiny:latest does not support vision"),
        (
            "/api/chat",
            {"model": "tiny", "messages": [{"role": "user", "content": "x", "images": ["aGk="]}]},
            "registry.ollama.ai/library/tiny:latest does not support vision",
        ),
        (
            "/api/chat",
            {"model": "tiny", "tools": [{"type": "function"}]},
            "registry.ollama.ai/library/tiny:latest does not support tools",
        ),
        *(
            ("/api/chat", {"model": "tiny", "messages": [HI, turn]}, "library/tiny:latest does not support tools")
            for turn in (
                {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": {}}}]},
                {"role": "tool", "content": "5", "tool_name": "f"},
                {"role": "Tool", "content": "5"},
            )
        ),
        ("/api/generate", {**OK, "model": "embed"}, '"embed" does not support generate'),
        ("/api/chat", {"model": "embed"}, '"embed" does not support chat'),
        ("/api/generate", {**OK, "raw": True, "system": "x"}, "raw mode does not support template, system, or context"),
        ("/api/generate", {**OK, "template": "{{ .System }}"}, "template: Go templates are not supported here"),
        ("/api/generate", {**OK, "context": ["a"]}, "context must be an array of token ids"),
        ("/api/chat", {"model": "tiny", "messages": [7]}, "messages[0] must be an object"),
        ("/api/chat", {"model": "tiny", "messages": [{"content": 7}]}, "messages[0].content must be a string"),
    ],
)
async def test_what_a_model_or_the_front_cannot_do_is_refused_in_words(front, path, body, message):
    status, answer = await front.ask(path, body)
    assert status == 400
    assert message in answer["error"]
    assert front.journal_of("start") == []  # refused before anything was loaded


@pytest.mark.parametrize("path", ["/api/generate", "/api/chat", "/api/show"])
async def test_an_unknown_model_is_a_404_in_ollamas_words(front, path):
    assert await front.ask(path, {"model": "nope:1b"}) == (404, {"error": "model 'nope:1b' not found"})


async def test_a_model_whose_weights_are_gone_or_zeroed_names_the_blob(own_front, store: Store):
    blob = store.blob(store.manifest("bare").layers[0])
    blob.write_bytes(bytes(blob.stat().st_size))
    status, answer = await own_front.ask("/api/generate", {**OK, "model": "bare"})
    assert status == 500
    assert blob.name in answer["error"]
    assert "bare" in answer["error"]
    blob.unlink()
    status, answer = await own_front.ask("/api/generate", {**OK, "model": "bare"})
    assert status == 500
    assert blob.name in answer["error"]
    assert (await own_front.ask("/api/generate", OK))[0] == 200


async def test_a_go_template_without_a_chat_template_is_refused_unless_raw(own_front, store: Store):
    weights = store.blob(store.manifest("bare").layers[0])
    store.add_gguf("gotmpl", weights, template="[INST] {{ .Prompt }} [/INST]")
    status, answer = await own_front.ask("/api/generate", {**OK, "model": "gotmpl"})
    assert status == 400
    assert "model 'gotmpl:latest' has a Go template" in answer["error"]
    assert (await own_front.ask("/api/generate", {**OK, "model": "gotmpl", "raw": True}))[0] == 200


async def test_an_error_before_the_first_token_has_a_status_and_a_later_one_ends_the_stream(front):
    status, answer = await front.ask("/api/generate", {**OK, "prompt": "fail echo:abcdefgh"})
    assert (status, answer) == (500, {"error": "a forward pass failed"})
    first, last = await front.lines("/api/generate", {**OK, "prompt": "fail echo:abcdefgh", "stream": True})
    assert first["response"] == "abcd"
    assert last == {"error": "a forward pass failed"}


async def test_a_crash_is_told_with_the_runners_last_words_and_the_next_request_works(own_front):
    status, answer = await own_front.ask("/api/generate", {**OK, "prompt": "crash echo:abcdefgh"})
    assert status == 500
    assert "the runner of 'tiny:latest' has unexpectedly stopped" in answer["error"]
    assert "exit code 3" in answer["error"]
    assert "fake runner: boom" in answer["error"]
    assert (await own_front.ask("/api/generate", OK))[1]["response"] == "fine"
    assert len(own_front.journal_of("start")) == 2


async def test_a_runner_that_cannot_load_is_told_with_its_last_words(start):
    async with start("--fail-load", "no such quantization") as front:
        status, answer = await front.ask("/api/generate", OK)
        assert status == 500
        assert "could not load it: exit code 1: fake runner: no such quantization" in answer["error"]


async def test_a_runner_that_cannot_be_started_names_the_command(start):
    async with start(runner=("/nonexistent/runner",)) as front:
        status, answer = await front.ask("/api/generate", OK)
        assert status == 500
        assert "cannot be started" in answer["error"]
        assert "/nonexistent/runner" in answer["error"]


async def test_a_load_without_a_sign_of_life_ends(start):
    async with start("--load-seconds", "60", load_timeout=0.5) as front:
        status, answer = await front.ask("/api/generate", OK)
        assert status == 500
        assert "gave no sign of life" in answer["error"]
        assert "PILOTFISH_LOAD_TIMEOUT" in answer["error"]


@pytest.mark.parametrize(
    ("method", "path", "words"),
    [
        ("POST", "/api/pull", "ollama pull"),
        ("POST", "/api/push", "ollama push"),
        ("POST", "/api/create", "ollama create"),
        ("POST", "/api/copy", "ollama cp"),
        ("DELETE", "/api/delete", "ollama rm"),
        ("POST", "/api/embed", "embeddings are not served here"),
        ("POST", "/api/embeddings", "embeddings are not served here"),
    ],
)
async def test_what_is_left_to_ollama_says_so(front, method, path, words):
    async with front.http.request(method, front.url + path, json={}) as response:
        assert response.status == 501
        assert words in (await response.json())["error"]


async def test_unknown_routes_and_methods_are_plain_text_as_ollamas(front):
    async with front.http.get(f"{front.url}/api/nothing") as response:
        assert (response.status, await response.text()) == (404, "404 page not found")
        assert response.content_type == "text/plain"
    async with front.http.get(f"{front.url}/api/generate") as response:
        assert (response.status, await response.text()) == (405, "405 method not allowed")
        assert response.headers["Allow"] == "POST"
