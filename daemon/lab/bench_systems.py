"""The systems that a benchmark compares, as values, and how each is started.

Every server is a process of its own that speaks HTTP, on this machine, with the same weights, threads and context;
everything else is its own default. So stock keeps f16 caches and pilotfish the caches of its lane, and ids are only
compared within a family: stock, or pilotfish on one engine. A server lives for one round in one mode: a memory of past
outputs, where a system has one, starts each round empty.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import aiohttp
import tomlkit

from pilotfish.daemon.config.reader import to_table
from pilotfish.daemon.config.types import Config, Daemon, Drafters, Plugins
from pilotfish.daemon.lab import bench_replay
from pilotfish.daemon.lab.asking import Client
from pilotfish.daemon.lab.bench_measuring import Answers, BenchedServer, LlamaServer
from pilotfish.daemon.lab.bench_starting import StartedServer, started
from pilotfish.hooks.errors import EngineError, UsageError

STOCK = "llama-server"  # stock, plain
PLAIN, SPECULATIVE, CEILING = "pilotfish plain", "pilotfish", "pilotfish oracle"  # the parts, one on each engine
RUNNER = (sys.executable, "-m", "pilotfish.daemon.runner.main")
RIGHT_FOR = 200  # tokens, after which the fickle drafter is wrong


@dataclass(frozen=True, slots=True)
class System:
    """One contender. `reference` names the plain system whose ids its own must equal; "" where there is none.

    A system with a `server` is started, one with a `url` is there already. `part` is its name without the engine that
    computes, which pilotfish's systems have. `replay` is the table of a drafter that knows the answer
    (`bench_replay`); without it pilotfish drafts as configured, or with `drafters` where these are given.
    """

    name: str
    about: str
    reference: str = ""
    server: tuple[str, ...] = ()
    url: str = ""
    fields: Mapping[str, Any] = field(default_factory=dict)  # of every request
    replay: Mapping[str, Any] | None = None
    part: str = ""
    engine: str = ""
    drafters: Drafters | None = None


@dataclass(frozen=True, slots=True)
class Bed:
    """What all systems share. `folder` is the run's own; `state` holds certificates and remembered checks."""

    model: Path
    model_name: str  # as Ollama-compatible endpoints know it
    threads: int
    context: int  # tokens
    config: Config
    folder: Path
    state: Path

    def recording(self, system: System) -> Path:
        """Where the answer that the system's drafter replays is written before each request."""
        return self.folder / f"{slug(system.name)}.recording.json"


def stock_systems(server: Path, modes: Sequence[str]) -> list[System]:
    """Stock llama-server, plain and with each of its n-gram modes at their defaults."""
    plain = System(STOCK, "stock llama-server, no speculation", server=(str(server),))
    return [
        plain,
        *(
            System(mode, f"stock llama-server, --spec-type {mode}", STOCK, (str(server), "--spec-type", mode))
            for mode in modes
        ),
    ]


def pilotfish_systems(engine: str, *, adversaries: bool = False, n_predict: int = 256) -> list[System]:
    """Pilotfish on one engine: plain, as configured, and with an oracle.

    With `adversaries` also with drafters made to cost time.
    """
    turn = RIGHT_FOR if n_predict > RIGHT_FOR else n_predict // 2
    replays: dict[str, tuple[str, dict[str, int]]] = {CEILING: ("every guess right: the ceiling of this lane", {})}
    if adversaries:
        replays |= {
            "pilotfish junk": ("a drafter that is certain and always wrong", {"wrong_from": 0}),
            "pilotfish slow": ("a drafter that is right and takes 50 ms", {"delay_ms": 50}),
            "pilotfish fickle": (f"a drafter that is right for {turn} tokens, then wrong", {"wrong_from": turn}),
        }
    plain = on_engine(PLAIN, engine)

    def system(part: str, about: str, **more: Any) -> System:
        reference = "" if part == PLAIN else plain
        return System(on_engine(part, engine), about, reference, RUNNER, part=part, engine=engine, **more)

    return [
        system(PLAIN, f"pilotfish on {engine}, no speculation", fields={"speculate": False}),
        system(SPECULATIVE, f"pilotfish on {engine}, as configured"),
        *(system(part, about, replay=table) for part, (about, table) in replays.items()),
    ]


def on_engine(part: str, engine: str) -> str:
    """What a part of pilotfish is called on an engine: `pilotfish (ik) plain`."""
    return part.replace("pilotfish", f"pilotfish ({engine})", 1)


def engines_among(systems: Sequence[System]) -> list[str]:
    """The engines that pilotfish's systems among these compute with."""
    return list(dict.fromkeys(system.engine for system in systems if system.engine))


def endpoint(text: str) -> System:
    """A system from `NAME=URL`. Raises UsageError for anything else."""
    name, _, url = text.partition("=")
    if not name or not url.startswith(("http://", "https://")):
        raise UsageError(f"--url {text}: not NAME=URL, such as ollama=http://127.0.0.1:11434")
    return System(name, f"Ollama-compatible server at {url}", url=url)


@dataclass(frozen=True, slots=True)
class ServedSystem:
    """A system that can be asked, and its process where it was started for the run."""

    answers: Answers
    process: StartedServer | None = None


@contextlib.asynccontextmanager
async def serving(system: System, bed: Bed, session: aiohttp.ClientSession) -> AsyncIterator[ServedSystem]:
    """The system, loaded and ready. Raises EngineError, with its last words, when it does not come up."""
    if system.url:
        async with Client(system.url) as http:
            if not await http.alive():
                raise EngineError(f"{system.name}: nobody answers at {system.url}; start it, or leave it out")
            yield ServedSystem(BenchedServer(http, bed.model_name, bed.context))
        return
    async with started(lambda port: command(system, bed, port), system.name, session) as process:
        yield ServedSystem(LlamaServer(process.client, system.fields), process)


def command(system: System, bed: Bed, port: int) -> list[str]:
    """The command line that starts a system."""
    words = [*system.server, "--model", str(bed.model), "--host", "127.0.0.1", "--port", str(port)]
    words += ["-c", str(bed.context), "-np", "1", "-t", str(bed.threads), "--no-webui", "--offline"]
    if not system.engine:
        return words
    settings = {
        "PILOTFISH_CONFIG": str(_write_config(system, bed)),
        "PILOTFISH_STATE": str(bed.state),
        "PILOTFISH_CERTIFY": "off",  # an idle runner would certify while another system is timed
        "PILOTFISH_SOCKET": str(bed.folder / "none.sock"),  # no daemon of the user's is to change anything meanwhile
    }
    return ["env", *(f"{name}={value}" for name, value in settings.items()), *words]


def record(system: System, bed: Bed, ids: Sequence[int]) -> None:
    """Tell the system's drafter what the answer to its next request will be."""
    write_recording(bed.recording(system), ids)


def write_recording(path: Path, ids: Sequence[int]) -> None:
    """What `bench_replay` reads, in one step."""
    beside = path.with_suffix(".new")
    beside.write_text(json.dumps({"tokens": list(ids)}))
    beside.replace(path)


def slug(name: str) -> str:
    """`name` as a file's name."""
    return "".join(c if c.isalnum() else "-" for c in name)


def _write_config(system: System, bed: Bed) -> Path:
    config = replace(
        bed.config,
        speculation=replace(bed.config.speculation, enabled=True),
        engine=replace(bed.config.engine, choice=system.engine),
        daemon=Daemon(),
        models={},
    )
    if system.drafters is not None:
        config = replace(config, drafters=system.drafters)
    if system.replay is not None:
        table = {**system.replay, "recording": str(bed.recording(system))}
        drafters = Drafters((bench_replay.NAME,), {bench_replay.NAME: table})
        config = replace(config, drafters=drafters, plugins=Plugins((replay_plugins(bed.folder),)))
    path = bed.folder / f"{slug(system.name)}.toml"
    path.write_text(tomlkit.dumps(to_table(config)))
    return path


def replay_plugins(parent: Path) -> Path:
    """A plugin folder in `parent` with the drafter that knows the answer."""
    folder = parent / "plugins"
    folder.mkdir(mode=0o700, exist_ok=True)
    target = folder / "replay.py"
    shutil.copyfile(bench_replay.__file__, target)
    target.chmod(0o600)
    return folder
