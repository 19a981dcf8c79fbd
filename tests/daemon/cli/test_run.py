"""`pilotfish run` between pipes, files and a terminal: what is asked, and what comes out of it byte for byte."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import subprocess
import sys
import termios
import threading
import time
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

PILOTFISH = (sys.executable, "-m", "pilotfish.daemon.cli")
PIECES = ("a\tb :warning: ", "[red]x[/red]\r\n", "\x1b[2J\x1b]0;title\x07", "é😊\x9b31m\r", "  end \n\n")
ANSWER = "".join(PIECES)
SHOWN = "a\tb :warning: [red]x[/red]\n[2J]0;titleé😊31m  end \n\n"  # without what a terminal would obey


class Server(ThreadingHTTPServer):
    """Answers every chat with `pieces`, every second of them drafted; `asked` holds the chats."""

    daemon_threads = True

    def __init__(self, pieces):
        super().__init__(("127.0.0.1", 0), Handler)
        self.pieces = pieces
        self.asked = []

    @property
    def environment(self):
        return {**os.environ, "PILOTFISH_HOST": f"127.0.0.1:{self.server_port}", "TERM": "xterm-256color"}


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.answer([{"version": "0"}])

    def do_POST(self):
        self.server.asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.answer(
            {"message": piece if isinstance(piece, dict) else {"content": piece}, "pilotfish": {"drafted": number % 2}}
            for number, piece in enumerate(self.server.pieces)
        )

    def answer(self, objects):
        self.send_response(200)
        self.end_headers()
        for value in objects:
            self.wfile.write(json.dumps(value).encode() + b"\n")

    def log_message(self, *arguments):
        pass


@pytest.fixture
def serve():
    """Start a server whose answer has these pieces."""
    servers = []

    def serve(pieces=PIECES):
        server = Server(pieces)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return server

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()


def run(server, *words, stdin=b""):
    return subprocess.run(
        [*PILOTFISH, "run", "m", *words],
        input=stdin,
        capture_output=True,
        env=server.environment,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("options", [(), ("--show-drafts",)])
def test_into_a_pipe_goes_what_the_model_wrote_byte_for_byte(serve, options):
    done = run(serve(), "hi", *options)
    assert (done.returncode, done.stdout) == (0, ANSWER.encode())
    assert b"tok" in done.stderr  # the summary is no part of the answer


def on_a_terminal(server, *options):
    """What a terminal gets on stdout."""
    terminal, end = pty.openpty()
    process = subprocess.Popen(
        [*PILOTFISH, "run", "m", "hi", *options],
        stdin=subprocess.DEVNULL,
        stdout=end,
        stderr=subprocess.DEVNULL,
        env={**server.environment, "PYTHONIOENCODING": "utf-8"},
    )
    os.close(end)
    seen = b""
    try:
        while data := os.read(terminal, 4096):
            seen += data
    except OSError:  # how Linux says that the other end was closed
        pass
    os.close(terminal)
    assert process.wait(60) == 0
    return seen.decode().replace("\r\n", "\n")


def test_a_terminal_gets_everything_but_what_it_would_obey(serve):
    assert on_a_terminal(serve()) == SHOWN + "\n"


def test_colours_come_around_the_text_not_into_it(serve):
    seen = on_a_terminal(serve(), "--show-drafts")
    assert "\x1b[36m[red]x[/red]\n\x1b[0m" in seen
    assert seen.replace("\x1b[36m", "").replace("\x1b[0m", "") == SHOWN + "\n"


def test_what_a_model_thinks_is_shown_on_a_terminal_and_is_no_part_of_the_answer(serve):
    pieces = [{"content": "", "thinking": "Hm, "}, {"content": "", "thinking": "so."}, "Hi", " there."]
    seen = on_a_terminal(serve(pieces))
    assert seen.replace("\x1b[90m", "").replace("\x1b[0m", "") == "Hm, so.\n\nHi there.\n"
    assert run(serve(pieces), "hi").stdout == b"Hi there."


def test_a_reader_that_goes_away_ends_it_without_a_word(serve):
    def endless():
        while True:
            yield "word "

    server = serve(endless())
    process = subprocess.Popen(
        [*PILOTFISH, "run", "m", "hi"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=server.environment,
    )
    assert process.stdout.read(3) == b"wor"
    process.stdout.close()
    assert process.wait(60) == 128 + 13  # as the shell reports any program that SIGPIPE ends
    assert process.stderr.read() == b""
    process.stderr.close()


@pytest.mark.parametrize(
    ("words", "stdin", "question"),
    [
        (("summarize this",), b"my notes", "my notes summarize this"),
        (("summarize this",), b"a\r\nb\n", "a\r\nb\n summarize this"),
        (("tell", "me", "a story"), b"", "tell me a story"),
        ((), b"from a pipe\n", "from a pipe\n"),
        (("what is",), b"caf\xe9", "caf\ufffd what is"),
    ],
)
def test_what_is_piped_in_stands_before_the_words(serve, words, stdin, question):
    server = serve()
    assert run(server, *words, stdin=stdin).returncode == 0
    (chat,) = server.asked
    assert chat["messages"] == [{"role": "user", "content": question}]


@pytest.mark.parametrize("stdin", [b"", b" \n"])
def test_nothing_piped_in_and_no_prompt_is_no_question(serve, stdin):
    server = serve()
    done = run(server, stdin=stdin)
    assert (done.returncode, done.stdout, server.asked) == (0, b"", [])
    assert b"no question" in done.stderr


def test_verbose_tells_every_figure_and_otherwise_one_line(serve):
    assert len(run(serve(), "hi").stderr.splitlines()) == 1
    names = [line.partition(b":")[0] for line in run(serve(), "hi", "--verbose").stderr.splitlines()]
    assert names[:2] == [b"total duration", b"load duration"]
    assert b"eval rate" in names


class Terminal:
    """`pilotfish run m` as a person has it."""

    def __init__(self, server, home, *options):
        self._unread = ""
        self._own, end = pty.openpty()
        environment = {**server.environment, "PILOTFISH_STATE": str(home), "PROMPT_TOOLKIT_NO_CPR": "1"}
        self.process = subprocess.Popen(
            [*PILOTFISH, "run", "m", *options],
            stdin=end,
            stdout=end,
            stderr=end,
            env=environment,
            preexec_fn=partial(_controls, end),
        )
        os.close(end)

    def type(self, text):
        os.write(self._own, text.encode())

    def until(self, text):
        """What comes up to `text`, after what the last call gave."""
        while text not in self._unread:
            self._unread += os.read(self._own, 4096).decode("utf-8", "replace")
        before, _, self._unread = self._unread.partition(text)
        return before

    def left(self):
        """The exit code, once it has ended."""
        with contextlib.suppress(OSError):  # how Linux says that the other end was closed
            while os.read(self._own, 4096):
                pass
        os.close(self._own)
        return self.process.wait(60)


def _controls(end):
    """Makes a terminal the one whose Ctrl-C this process gets."""
    os.setsid()
    fcntl.ioctl(end, termios.TIOCSCTTY, 0)


PROMPT = "lists commands"


def test_a_chat_with_drafts_in_colour_several_lines_and_commands(serve, tmp_path):
    server = serve(["plain ", "drafted"])
    terminal = Terminal(server, tmp_path, "--show-drafts")
    terminal.until(PROMPT)
    terminal.type('"""one\r')
    terminal.until("...")
    terminal.type('two"""\r')
    assert "plain \x1b[36mdrafted\x1b[0m" in terminal.until("nothing drafted")
    terminal.until(PROMPT)
    terminal.type("/set parameter seed 3\r")
    terminal.until("seed is 3.")
    terminal.until(PROMPT)
    terminal.type("\x1b[A\x15again\r")  # the line before, and away with it
    terminal.until("nothing drafted")
    terminal.until(PROMPT)
    terminal.type("\x04")
    assert terminal.left() == 0
    first, second = server.asked
    assert [message["content"] for message in first["messages"]] == ["one\ntwo"]
    assert [message["content"] for message in second["messages"]] == ["one\ntwo", "plain drafted", "again"]
    assert second["options"] == {"speculate": True, "seed": 3}


class EndlessAtFirst:
    """Pieces without an end for the first answer, one piece for the next."""

    def __init__(self):
        self.begun = 0

    def __iter__(self):
        self.begun += 1
        yield "word "
        while self.begun == 1:
            time.sleep(0.02)
            yield "word "


def test_ctrl_c_stops_an_answer_and_nothing_else(serve, tmp_path):
    server = serve(EndlessAtFirst())
    terminal = Terminal(server, tmp_path)
    terminal.until(PROMPT)
    terminal.type("go\r")
    terminal.until("word word word")
    terminal.type("\x03")
    terminal.until("Stopped.")
    terminal.until(PROMPT)
    terminal.type("and now?\r")
    terminal.until("nothing drafted")
    terminal.until(PROMPT)
    terminal.type("/bye\r")
    assert terminal.left() == 0
    said = [message["content"] for message in server.asked[1]["messages"]]
    assert said[0] == "go"
    assert said[1].startswith("word word word")
    assert said[2] == "and now?"
