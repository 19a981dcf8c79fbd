#!/usr/bin/env python3
"""A stand-in for llama-server, stock or ours: one byte a token, ids that depend on the prompt and nothing else.

`--spec-type ngram-wrong` changes the last id, `ngram-broken` cannot load. Its standard error says how it was started.
"""

from __future__ import annotations

import argparse
import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


def as_program(folder: Path) -> Path:
    """`folder/llama-server`, which runs this file."""
    path = folder / "llama-server"
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{__file__}" "$@"\n')
    path.chmod(0o755)
    return path


HELP = "usage:\n--spec-type none,draft-simple,ngram-good,ngram-wrong,ngram-broken\n       comma-separated list\n"


class Handler(BaseHTTPRequestHandler):
    spec_type = ""

    def do_GET(self) -> None:
        self.reply({"status": "ok"})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/apply-template":
            self.reply({"prompt": "".join(f"<{m['role']}>{m['content']}" for m in body["messages"])})
        elif self.path == "/tokenize":
            self.reply({"tokens": list(body["content"].encode())})
        else:
            self.complete(body)

    def complete(self, body: dict) -> None:
        n = body["n_predict"]
        ids = [(sum(body["prompt"]) + i) % 256 for i in range(n)]
        if self.spec_type == "ngram-wrong":
            ids[-1] ^= 1
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for token in ids:
            self.event({"content": chr(token), "tokens": [token], "stop": False})
        drafts = {"draft_n": 8, "draft_n_accepted": 6} if self.spec_type or body.get("speculate", True) else {}
        self.event({"content": "", "tokens": [], "stop": True, "tokens_predicted": n, "timings": drafts})

    def event(self, value: dict) -> None:
        self.wfile.write(b"data: " + json.dumps(value).encode() + b"\n\n")

    def reply(self, value: dict) -> None:
        data = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *words: object) -> None:
        pass


def main() -> None:
    if "--help" in sys.argv:
        print(HELP)  # noqa: T201  # what a program says about itself
        return
    if "--version" in sys.argv:
        print("version: 4711 (fake)", file=sys.stderr)  # noqa: T201  # likewise
        return
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int)
    parser.add_argument("--spec-type", default="")
    arguments, _ = parser.parse_known_args()
    if arguments.spec_type == "ngram-broken":
        sys.exit("fake: this mode does not load")
    Handler.spec_type = arguments.spec_type
    ThreadingHTTPServer(("127.0.0.1", arguments.port), Handler).serve_forever()


if __name__ == "__main__":
    main()
