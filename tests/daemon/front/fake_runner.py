"""A stand-in for the runner: llama-server's protocol, one byte a token, answers scripted by the prompt.

A prompt's last `echo:` names the text to answer; `endless`, `flood` (as much as is read), `crash` and `fail` do what
they say. What happens is appended to the file given by --record, one JSON object a line.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from pathlib import Path

from aiohttp import web

PIECE = 4  # bytes answered per event


def main() -> None:
    parser = argparse.ArgumentParser()
    for flag in ("--model", "--host", "--record", "--fail-load", "-np", "-b", "-ub", "-t", "-ngl"):
        parser.add_argument(flag)
    parser.add_argument("--port", type=int)
    parser.add_argument("-c", type=int)
    parser.add_argument("--load-seconds", type=float, default=0.0)
    for flag in ("--no-webui", "--offline", "--alternating", "--bos"):
        parser.add_argument(flag, action="store_true")
    arguments = parser.parse_args()
    if arguments.fail_load:
        sys.exit(f"fake runner: {arguments.fail_load}")
    runner = FakeRunner(arguments)
    runner.record("start", argv=sys.argv[1:], pid=os.getpid())
    web.run_app(
        runner.app(), host="127.0.0.1", port=arguments.port, handler_cancellation=True, print=None, shutdown_timeout=0.1
    )


class FakeRunner:
    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.ready_at = 0.0

    def app(self) -> web.Application:
        app = web.Application(client_max_size=1 << 26)
        app.router.add_get("/health", self.health)
        app.router.add_post("/apply-template", self.template)
        app.router.add_post("/tokenize", self.tokenize)
        app.router.add_post("/completion", self.completion)
        return app

    def record(self, event: str, **facts: object) -> None:
        if self.arguments.record:
            with Path(self.arguments.record).open("a") as file:
                file.write(json.dumps({"event": event, **facts}) + "\n")

    async def health(self, request: web.Request) -> web.Response:
        now = asyncio.get_running_loop().time()
        self.ready_at = self.ready_at or now + self.arguments.load_seconds
        if now < self.ready_at:
            return web.json_response({"error": {"message": "Loading model", "code": 503}}, status=503)
        return web.json_response({"status": "ok"})

    async def template(self, request: web.Request) -> web.Response:
        body = await request.json()
        messages = body["messages"]
        self.record("template", body=body)
        turns = [message for message in messages if message["role"] != "system"]
        if self.arguments.alternating and turns[0]["role"] != "user":
            return refuse(400, "conversation roles must alternate")
        text = "".join(f"<{message['role']}>{message['content']}\n" for message in messages)
        return web.json_response({"prompt": f"{text}<assistant>", **how_it_is_read(body)})

    async def tokenize(self, request: web.Request) -> web.Response:
        body = await request.json()
        bos = [1] if self.arguments.bos and body["add_special"] else []
        return web.json_response({"tokens": [*bos, *body["content"].encode()]})

    async def completion(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.record("completion", body=body)
        prompt = body["prompt"] if isinstance(body["prompt"], str) else bytes(body["prompt"]).decode()
        n_prompt = len(prompt.encode())
        if n_prompt >= self.arguments.c:
            return refuse(400, f"request ({n_prompt} tokens) exceeds the available context size ({self.arguments.c})")
        stream = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await stream.prepare(request)
        try:
            await self.answer(stream, body, prompt)
        except (asyncio.CancelledError, ConnectionError):
            self.record("cancelled")
            raise
        return stream

    async def answer(self, stream: web.StreamResponse, body: dict, prompt: str) -> None:
        order = prompt.rpartition("\n<assistant>")[0].rpartition("\n")[2] or prompt
        if "flood" in order:
            while True:
                await send(stream, {"content": "on " * 20000, "tokens": [1], "stop": False})
        if "endless" in order:
            while True:
                await send(stream, {"content": "on ", "tokens": [1], "stop": False})
                await asyncio.sleep(0.01)
        text = order.rpartition("echo:")[2] if "echo:" in order else "hello"
        pieces = [text[i : i + PIECE] for i in range(0, len(text), PIECE)]
        limit = body["n_predict"] if body["n_predict"] >= 0 else len(pieces)
        for number, piece in enumerate(pieces[:limit]):
            event = {"content": piece, "tokens": list(piece.encode()), "stop": False, "drafted": number % 2 == 1}
            if n_probs := body.get("n_probs"):
                top = [{"token": f"t{i}", "logprob": -1.0 - i} for i in range(n_probs)]
                event["completion_probabilities"] = [{"token": piece, "logprob": -0.5, "top_logprobs": top}]
            await send(stream, event)
            if "crash" in order:
                os.write(2, b"fake runner: boom\n")
                os._exit(3)
            if "fail" in order:
                await send(stream, {"error": {"code": 500, "message": "a forward pass failed", "type": "server_error"}})
                return
        await send(stream, final(body, prompt, min(limit, len(pieces)), cut=limit < len(pieces)))


def how_it_is_read(body: dict) -> dict:
    """As the runner says it, for Hermes' calls and thinking in the usual tags."""
    if not body.get("tools") and "chat_template_kwargs" not in body:
        return {}
    reading = {"calls": "hermes" if body.get("tools") else "", "reasoning": ["<think>", "</think>"], "begun": ""}
    completion = {"grammar": "root ::= .*", "preserved_tokens": ["<think>"]} if body.get("tools") else {}
    return {"pilotfish": {"reading": {**reading, "continued": False, "thoughts": True}, "completion": completion}}


def final(body: dict, prompt: str, predicted: int, *, cut: bool) -> dict:
    timings = {"cache_n": 2, "prompt_n": len(prompt.encode()) - 2, "prompt_ms": 3.0, "predicted_n": predicted}
    drafts = {"draft_n": 6, "draft_n_accepted": 4} if body["speculate"] else {}
    return {
        "content": "",
        "tokens": [],
        "stop": True,
        "stop_type": "limit" if cut else "eos",
        "prompt": prompt,
        "timings": {**timings, "predicted_ms": 5.0, **drafts},
        "pilotfish": {"parity": "lane", "lane": "bf16/f16", "speculated": body["speculate"]},
    }


async def send(stream: web.StreamResponse, event: dict) -> None:
    await stream.write(b"data: " + json.dumps(event).encode() + b"\n\n")


def refuse(status: int, message: str) -> web.Response:
    error = {"code": status, "message": message, "type": "invalid_request_error"}
    return web.json_response({"error": error}, status=status)


if __name__ == "__main__":
    main()
