"""A llama-server that needs no model: it reports what it was given, streams, and dies on request.

Run as a program with llama-server's arguments. `--fail` makes it end at once, `--slow` FILE makes it answer
`/health` with 503 until that file is there.
"""

from __future__ import annotations

import json
import os
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


def option(name: str, default: str = "") -> str:
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else default


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "fake"

    def do_GET(self) -> None:
        if self.path == "/health":
            ready = "--slow" not in sys.argv or Path(option("--slow")).exists()
            return self.answer(200 if ready else 503, b"{}")
        return self.act(b"")

    def do_POST(self) -> None:
        self.act(self.rfile.read(int(self.headers.get("Content-Length", 0))))

    def do_PUT(self) -> None:
        self.do_POST()

    def act(self, body: bytes) -> None:
        if self.path == "/die" or b'"die"' in body:
            sys.stderr.write("GGML_ASSERT(too much) failed\n")
            os._exit(3)
        if self.path.startswith(("/stream", "/forever", "/flood", "/break")):
            return self.stream(body.decode())
        seen = {
            "argv": sys.argv[1:],
            "pid": os.getpid(),
            "environment": dict(os.environ),
            "request": [self.command, self.path, body.decode("latin-1")],
            "headers": [list(pair) for pair in self.headers.items()],
        }
        return self.answer(int(option("--status", "200")), json.dumps(seen).encode())

    def stream(self, folder: str) -> None:
        """Chunks. The second waits for the file `go` in `folder`; a broken connection makes the file `gone`."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.chunk(b"data: 1\n\n")
        if self.path == "/break":
            os._exit(4)
        while self.path == "/stream" and not Path(folder, "go").exists():
            time.sleep(0.01)
        try:
            while self.path == "/flood":
                self.chunk(bytes(1 << 16))
            while self.path == "/forever":
                time.sleep(0.01)
                self.chunk(b"data: more\n\n")
        except OSError:
            Path(folder, "gone").touch()
            return
        self.chunk(b"data: 2\n\n")
        self.chunk(b"")

    def chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json; charset=utf-8")
        self.send_header("X-Twice", "a")
        self.send_header("X-Twice", "b")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: every poll would be a line."""


if __name__ == "__main__":
    if "--fail" in sys.argv:
        sys.exit("loading\nerror: the model is damaged")
    ThreadingHTTPServer((option("--host"), int(option("--port"))), Handler).serve_forever()
