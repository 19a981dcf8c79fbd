"""What a verdict about a launch depends on, besides the weight file: a hash that the shim and the runner both make.

The shim has a fraction of a second, so libraries are told apart by their sizes and times, not by their content.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.util
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pilotfish import __version__
from pilotfish.daemon.config.paths import state_dir
from pilotfish.daemon.config.types import Config
from pilotfish.daemon.drafters.promotions import FOLDER
from pilotfish.daemon.runner.launch_arguments import Launch

_OF_THE_SERVER = ("host", "port", "alias", "blob")  # fields of a launch that change nothing about how it computes
# How variables begin that engines and llama-server read. Not LLAMA_ alone: Ollama draws a media marker at each load.
_ENGINES_READ = ("GGML_", "LLAMA_ARG_", "LLAMA_CPP_", "IK_LLAMA_")


def circumstances(
    launch: Launch, config: Config, environment: Mapping[str, str], packages: Iterable[str], stock: Path | None
) -> str:
    """32 hex digits. `config` is the one in force for the launch's models, `environment` is what Ollama gave,
    `packages` are the engines', and `stock` is the stock server's program.
    """
    decides = [
        __version__,
        {field.name: getattr(launch, field.name) for field in dataclasses.fields(launch)
         if field.name not in _OF_THE_SERVER},
        [config.speculation.parity, config.speculation.max_width, config.drafters.order, config.plugins.folders],
        dataclasses.asdict(config.engine),
        _promoted() if config.speculation.require_promotion else None,
        sorted((name, value) for name, value in environment.items() if name.startswith(_ENGINES_READ)),
        [os.cpu_count(), len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None],
        sorted(_states(packages, stock)),
    ]  # fmt: skip
    return hashlib.sha256(json.dumps(decides, default=str).encode()).hexdigest()[:32]


def _promoted() -> list[tuple[str, int, int]]:
    """Every promotion there is: where the config wants them, a new one may give a model something to gain."""
    return sorted(state for path in (state_dir() / FOLDER).glob("*.json") for state in _state(path))


def _states(packages: Iterable[str], stock: Path | None) -> Iterator[Any]:
    """The libraries of each engine that is installed, and the stock server."""
    for package in packages:
        spec = importlib.util.find_spec(package)  # finds the package without importing it
        for folder in spec.submodule_search_locations or () if spec else ():
            for library in Path(folder, "lib").glob("*"):
                yield from _state(library)
    if stock is not None:
        yield from _state(stock)


def _state(path: Path) -> Iterator[tuple[str, int, int]]:
    try:
        status = path.stat()
    except OSError:
        return
    yield str(path), status.st_size, status.st_mtime_ns
