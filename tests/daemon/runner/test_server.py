"""llama-server's `/completion` against a scripted engine: what goes in, what comes out."""

from __future__ import annotations

import threading

from pilotfish.daemon.core.generation import Outcome, OutputToken, StopType, Timings
from pilotfish.daemon.lab.fakes.fake_engine import FakeEngine
from pilotfish.hooks.types import TokenLogprob
from tests.daemon.runner.scripted import BODY, WORDS, ScriptedGenerator, ask, events, serving


async def test_a_streamed_answer_is_one_chunk_per_token_and_a_final_one():
    async with serving(ScriptedGenerator()) as client:
        *chunks, final = await events(client, **BODY)

    assert [(c["content"], c["tokens"], c["tokens_predicted"], c["stop"]) for c in chunks] == [
        ("five ", [5], 1, False),
        ("six ", [6], 2, False),
        ("seven", [7], 3, False),
    ]
    assert (final["stop"], final["content"], final["tokens"], final["stop_type"]) == (True, "", [], "limit")
    assert (final["tokens_evaluated"], final["tokens_predicted"], final["tokens_cached"]) == (3, 3, 5)
    assert final["prompt"] == "2 3 4 "
    timings = final["timings"]
    assert (timings["cache_n"] + timings["prompt_n"], timings["predicted_n"]) == (3, 3)
    assert (timings["draft_n"], timings["draft_n_accepted"]) == (3, 2)
    assert timings["predicted_per_token_ms"] == 10.0
    assert final["pilotfish"] == {
        "parity": "lane",
        "lane": "fake",
        "speculated": True,
        "rounds": 1,
        "drafted": 3,
        "accepted": 2,
        "drafters": [],
        "dropped": {},
    }


async def test_a_whole_answer_says_the_same_as_the_stream():
    async with serving(ScriptedGenerator()) as client:
        status, whole = await ask(client, **BODY, return_tokens=True)
        *chunks, final = await events(client, **BODY)

    assert status == 200
    assert whole["content"] == "".join(chunk["content"] for chunk in chunks)
    assert whole["tokens"] == [token for chunk in chunks for token in chunk["tokens"]]
    assert whole.keys() == final.keys()


async def test_tokens_are_only_listed_in_a_whole_answer_when_asked_for():
    async with serving(ScriptedGenerator()) as client:
        assert (await ask(client, **BODY))[1]["tokens"] == []


async def test_no_drafts_no_draft_counts():
    outcome = Outcome(StopType.EOS, Timings(prompt_n=3, predicted_n=3))
    async with serving(ScriptedGenerator(outcome=outcome)) as client:
        _, whole = await ask(client, **BODY)

    assert "draft_n" not in whole["timings"]
    assert whole["stop_type"] == "eos"


async def test_drafted_tokens_are_marked_on_request_only():
    async with serving(ScriptedGenerator()) as client:
        *marked, _ = await events(client, **BODY, return_drafted=True)
        *plain, _ = await events(client, **BODY)

    assert [chunk["drafted"] for chunk in marked] == [False, True, True]
    assert all("drafted" not in chunk for chunk in plain)


async def test_text_held_for_a_stop_string_gives_an_empty_chunk_as_in_stock():
    held = [OutputToken(5, ""), OutputToken(6, "5 6 ")]
    async with serving(ScriptedGenerator([held])) as client:
        *chunks, _ = await events(client, **BODY, stop=["6 7"])

    assert [(c["content"], c["tokens"]) for c in chunks] == [("", [5]), ("5 6 ", [6])]


async def test_halves_of_a_character_travel_with_the_one_that_completes_it():
    engine = FakeEngine(pieces={5: b"\xf0\x9f", 6: b"\x98\x8a"})
    batches = [[OutputToken(5, "")], [OutputToken(6, "😊")], [OutputToken(5, "")]]
    async with serving(ScriptedGenerator(batches, engine=engine)) as client:
        *chunks, final = await events(client, **BODY)
        _, whole = await ask(client, **BODY, return_tokens=True)

    assert [(c["content"], c["tokens"], c["tokens_predicted"]) for c in chunks] == [("😊", [5, 6], 2)]
    assert final["tokens"] == [5]  # of a character that was cut off; nothing is lost
    assert (whole["content"], whole["tokens"]) == ("😊", [5, 6, 5])


async def test_control_characters_are_escaped_and_other_text_is_utf8():
    async with serving(ScriptedGenerator([[OutputToken(5, 'a\x07b\n"é😊')]])) as client:
        response = await client.post("/completion", json={**BODY, "stream": True})
        raw = await response.read()

    first = raw.split(b"\n\n")[0]
    assert b'a\\u0007b\\n\\"' in first
    assert "é😊".encode() in first
    assert not any(byte < 0x20 for byte in first)


async def test_log_probabilities_have_stocks_shape():
    logprob = TokenLogprob(5, -0.5, b"5 ", (TokenLogprob(5, -0.5, b"5 "), TokenLogprob(9, float("-inf"), b"\xc3")))
    async with serving(ScriptedGenerator([[OutputToken(5, "5 ", logprob=logprob)]])) as client:
        chunk, final = await events(client, **BODY, n_probs=2)
        _, whole = await ask(client, **BODY, n_probs=2)

    expected = {
        "id": 5,
        "token": "5 ",
        "bytes": [53, 32],
        "logprob": -0.5,
        "top_logprobs": [
            {"id": 5, "token": "5 ", "bytes": [53, 32], "logprob": -0.5},
            {"id": 9, "token": "", "bytes": [0xC3], "logprob": -3.4028234663852886e38},
        ],
    }
    assert chunk["completion_probabilities"] == [expected]
    assert "completion_probabilities" not in final
    assert whole["completion_probabilities"] == [expected]


async def test_the_stop_strings_own_tokens_have_no_probabilities_in_a_whole_answer():
    output_tokens = [OutputToken(t, "", logprob=TokenLogprob(t, -1.0, b"%d " % t)) for t in (5, 6, 7)]
    outcome = Outcome(StopType.WORD, Timings(prompt_n=3, predicted_n=3), stopping_word="6 7")
    async with serving(ScriptedGenerator([output_tokens], outcome=outcome)) as client:
        _, whole = await ask(client, **BODY, n_probs=1, stop="6 7")

    assert [entry["id"] for entry in whole["completion_probabilities"]] == [5]


async def test_timings_per_token_come_with_every_chunk():
    async with serving(ScriptedGenerator()) as client:
        *chunks, _ = await events(client, **BODY, timings_per_token=True)

    assert [chunk["timings"]["predicted_n"] for chunk in chunks] == [1, 2, 3]
    assert all(chunk["timings"]["prompt_n"] + chunk["timings"]["cache_n"] == 3 for chunk in chunks)


async def test_response_fields_pick_and_unnest():
    async with serving(ScriptedGenerator()) as client:
        _, whole = await ask(client, **BODY, response_fields=["content", "timings/predicted_n", "no/such"])

    assert whole == {"content": "five six seven", "timings/predicted_n": 3}


async def test_the_seed_in_force_is_reported():
    async with serving(ScriptedGenerator()) as client:
        _, fixed = await ask(client, **BODY, seed=42)
        seeds = {(await ask(client, **BODY, seed=-1))[1]["generation_settings"]["seed"] for _ in range(3)}

    assert fixed["generation_settings"]["seed"] == 42
    assert len(seeds) == 3
    assert all(0 <= seed < 2**32 - 1 for seed in seeds)


async def test_several_prompts_give_several_answers():
    async with serving(ScriptedGenerator()) as client:
        _, native = await ask(client, prompt=["2 3", "4"], n_predict=3)
        _, text = await ask(client, "/v1/completions", prompt=["2 3", "4"], max_tokens=3)

    assert [(a["index"], a["tokens_evaluated"]) for a in native] == [(0, 2), (1, 1)]
    assert [choice["index"] for choice in text["choices"]] == [0, 1]


async def test_an_empty_prompt_is_answered_at_once_with_nothing():
    generator = ScriptedGenerator()
    async with serving(generator) as client:
        status, whole = await ask(client, prompt="", n_predict=3)

    assert (status, whole["content"], whole["tokens_predicted"]) == (200, "", 0)
    assert generator.requests == []


async def test_a_silent_stream_is_kept_alive_with_comments():
    gate = threading.Semaphore(0)
    async with serving(ScriptedGenerator(gate=gate)) as client:
        response = await client.post("/completion", json={**BODY, "stream": True, "sse_ping_interval": 1})
        assert await response.content.readline() == b":\n"
        gate.release()
        text = await response.text()
    assert text.count("data: ") == len(WORDS) + 1
