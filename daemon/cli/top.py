"""`pilotfish top`: the loaded models as they work, in a terminal."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import termios
import tty
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

import click
from rich.live import Live

from pilotfish.daemon.cli.console import end_unread, out
from pilotfish.daemon.cli.top_screen import screen
from pilotfish.daemon.cli.top_snapshot import MAX_EVENTS, Event, TopSnapshot, changes, decided, snapshot
from pilotfish.daemon.config.files import load_or_last_good
from pilotfish.daemon.config.paths import state_dir
from pilotfish.daemon.control import decision_log
from pilotfish.daemon.control.address import socket_path
from pilotfish.daemon.control.control_client import ask_status

QUIT = b"qQ\x03\x04"  # and Ctrl-C, Ctrl-D where the terminal hands them on


@click.command("top")
@click.option("--once", is_flag=True, help="Print once and end, as without a terminal.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object, once.")
@click.option("--interval", type=click.FloatRange(0.1, 3600), default=1.0, help="Seconds between two looks.")
def command(once: bool, as_json: bool, interval: float) -> None:
    """Watch the loaded models: state and reason, rates now, drafts right, time saved, events. The key q quits."""
    watch = Watched(socket_path(load_or_last_good()))
    try:
        if once or as_json or not (sys.stdin and sys.stdin.isatty() and sys.stdout.isatty()):
            _print(asyncio.run(watch.look()), watch, as_json)
        else:
            asyncio.run(_live(watch, interval))
    except BrokenPipeError:
        end_unread()


class Watched:
    """Looks, and remembers what happened."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self._last: TopSnapshot | None = None
        self._launches: list[Event] = []
        self._changes: deque[Event] = deque(maxlen=MAX_EVENTS)

    async def look(self) -> TopSnapshot:
        """How things stand now."""
        status = await ask_status(self._socket)
        decisions = await asyncio.to_thread(decision_log.read, state_dir())
        now = snapshot(str(self._socket), status, decisions)
        self._launches = decided(decisions)
        if self._last is not None:
            self._changes += changes(self._last, now)
        self._last = now
        return now

    @property
    def events(self) -> list[Event]:
        """Oldest first: launches, and what was seen to change."""
        return sorted([*self._launches, *self._changes], key=lambda event: event.time)[-MAX_EVENTS:]


def _print(now: TopSnapshot, watch: Watched, as_json: bool) -> None:
    if as_json:
        events = [asdict(event) for event in watch.events]
        loaded = [{**asdict(model), "right": model.right} for model in now.loaded]
        click.echo(json.dumps({**asdict(now), "loaded": loaded, "events": events}, indent=2))
        return
    out.print(screen(now, watch.events, out.width), soft_wrap=True)


async def _live(watch: Watched, interval: float) -> None:
    looking = asyncio.create_task(_keep_looking(watch, interval))
    with _keys(looking.cancel), contextlib.suppress(asyncio.CancelledError):
        await looking


async def _keep_looking(watch: Watched, interval: float) -> None:
    with Live(console=out, screen=True, auto_refresh=False) as live:
        while True:
            now = await watch.look()
            live.update(screen(now, watch.events, out.width, out.height), refresh=True)
            await asyncio.sleep(interval)


@contextlib.contextmanager
def _keys(leave: Callable[[], object]) -> Iterator[None]:
    """Keys are read one by one, without an echo, until the block ends; a signal or a key to quit calls `leave`."""
    loop, keyboard = asyncio.get_running_loop(), sys.stdin.fileno()
    before = termios.tcgetattr(keyboard)

    def read() -> None:
        pressed = os.read(keyboard, 64)
        if not pressed or any(key in QUIT for key in pressed):
            leave()

    tty.setcbreak(keyboard)
    loop.add_reader(keyboard, read)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, leave)
    try:
        yield
    finally:
        loop.remove_reader(keyboard)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.remove_signal_handler(number)
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)
