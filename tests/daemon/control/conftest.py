"""A home of its own for every test: config, state, socket."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pilotfish.daemon.config import files as config_file
from pilotfish.daemon.control import control_client, watcher
from pilotfish.daemon.control.control_client import ControlClient
from pilotfish.daemon.control.plans import Plan, Registration, Report
from pilotfish.daemon.core.totals import Totals
from tests.manifests.builders import tiny_gguf


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Not pytest's own folder: the path of a socket must be short."""
    home = Path(tempfile.mkdtemp(prefix="pf-")).resolve()
    monkeypatch.delenv("PILOTFISH_CONFIG", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "config"))
    monkeypatch.setenv("PILOTFISH_STATE", str(home / "state"))
    monkeypatch.setenv("PILOTFISH_SOCKET", str(home / "run" / "p.sock"))
    monkeypatch.setenv("OLLAMA_MODELS", str(home / "models"))
    monkeypatch.setattr(config_file, "SYSTEM_FILE", home / "etc" / "pilotfish.toml")
    monkeypatch.setattr(watcher, "QUIET", 0.02)
    monkeypatch.setattr(control_client, "LAST_RETRY", 0.1)
    yield home
    shutil.rmtree(home)


@pytest.fixture
def socket(home: Path) -> Path:
    return home / "run" / "p.sock"


@pytest.fixture
def config(home: Path) -> Path:
    """The user's config file, whose folder is there."""
    (home / "config" / "pilotfish").mkdir(parents=True)
    return home / "config" / "pilotfish" / "pilotfish.toml"


def save(path: Path, text: str) -> None:
    """As editors do it: write beside, then rename."""
    beside = path.with_name(f".{path.name}.new")
    beside.write_text(text)
    beside.replace(path)


async def until(true: Callable[[], object], seconds: float = 60.0) -> None:
    """Wait for something that must come to be true; fail if it never does."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it never came to be"
        await asyncio.sleep(0.005)


async def status_once(socket: Path, true: Callable[[dict[str, Any]], object], seconds: float = 60.0) -> dict[str, Any]:
    """What the daemon at `socket` says, once it says so."""
    end = time.monotonic() + seconds
    while (status := await control_client.ask_status(socket)) is None or not true(status):
        assert time.monotonic() < end, f"it never came to be: {status}"
        await asyncio.sleep(0.01)
    return status


async def settled() -> None:
    """Long enough for a watch to have noticed whatever there is to notice."""
    await asyncio.sleep(0.3)


class FakeRunner:
    """A runner that remembers its plans; `fail` is raised on every plan, and for every report."""

    def __init__(self, path: Path, model: str = "smollm2:135m", *, pid: int = 7, aliases: tuple[str, ...] = ()) -> None:
        self.plans: list[Plan] = []
        self.now = Report()
        self.fail: BaseException | None = None
        registration = Registration(
            pid, 4711, model, 1.5, "sha256:ab", "bf16-f16", "lane", (1, 2), ("suffix",), aliases
        )
        self.link = ControlClient(path, registration, self._follow, self._report, retry=0.02, report_every=0.02)

    async def _follow(self, plan: Plan) -> None:
        self.plans.append(plan)
        if self.fail:
            raise self.fail

    def _report(self) -> Report:
        if self.fail:
            raise self.fail
        return self.now

    def did(self, pool: Mapping[str, Mapping[str, str]] | None = None, **totals: int) -> None:
        self.now = replace(self.now, totals=Totals(**totals), pool=pool or {})

    @property
    def enabled(self) -> bool | None:
        return self.plans[-1].config.speculation.enabled if self.plans else None


@asynccontextmanager
async def running(path: Path, model: str = "smollm2:135m", **options: object) -> AsyncIterator[FakeRunner]:
    """A fake runner, linked."""
    runner = FakeRunner(path, model, **options)  # type: ignore[arg-type]  # handed on as they are
    runner.link.start()
    try:
        yield runner
    finally:
        await runner.link.close()


@pytest.fixture
def tiny(home: Path) -> Path:
    """A GGUF file of a few hundred bytes."""
    return tiny_gguf(home / "tiny.gguf")
