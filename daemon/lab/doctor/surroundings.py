"""Everything the doctor looks at, looked up once. Nothing is generated, loaded or started."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import psutil

from pilotfish.daemon.config.paths import state_dir
from pilotfish.daemon.config.types import STOCK_ENGINE, TENSOR_ENGINE, Config
from pilotfish.daemon.control.overview import overview
from pilotfish.daemon.drafters import lease
from pilotfish.daemon.farends.connected import held_here
from pilotfish.daemon.farends.looking import FarEndSeen
from pilotfish.daemon.front.settings import FrontSettings, parse_host
from pilotfish.daemon.kernels.kernels_here import kernels_lack
from pilotfish.daemon.registry.registry import Registry
from pilotfish.daemon.registry.spread import look_at
from pilotfish.hooks.errors import PilotfishError
from pilotfish.hooks.protocols import CertifiableVerifier
from pilotfish.manifests.manifest import Manifest
from pilotfish.manifests.store import Skipped, Store

_OVERLAY = (sys.executable, "-P", "-m", "pilotfish.daemon.cli", "overlay", "status", "--json")
_OVERLAY_SECONDS = 60.0
_VERSION_SECONDS = 2.0
_LIBRARY_FOLDER = "LLAMA_CPP_LIB_PATH"  # where llama-cpp-python looks for libllama; the overlay sets it, too


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What there is. Bytes of memory; names of devices with what their holder wrote about itself."""

    overview: Mapping[str, Any]  # see `control.overview`
    overlay: Mapping[str, Any] | None  # what `pilotfish overlay status --json` says; None where it fails
    ollama_url: str
    ollama_version: str  # of the server that answers there; empty where none does
    engines: Mapping[str, str]  # fingerprints of the engines that may compute, by name
    ollamas_llama: str  # that of the libllama of the Ollama that is overlaid; empty where there is none
    store: Store
    models: tuple[Manifest, ...]
    skipped: tuple[Skipped, ...]
    state_dir: Path
    free: int
    total: int
    held: Mapping[str, str]
    kernels_lack: bool = False  # whether batch-invariant kernels could be built here and are not
    tensor_engines: Mapping[str, str] = field(default_factory=dict)  # as `engines`, those for MLX models
    config: Config = field(default_factory=Config)  # that which was looked at
    far_ends: tuple[FarEndSeen, ...] = ()  # those that the config names, for all models or for one
    far_held: tuple[str, ...] = ()  # addresses of those that a process of this machine is connected to

    def far_free(self, model: str) -> int:
        """Bytes that are free on the far ends over which the model would be split."""
        named = self.config.for_model(model).engine.rpc
        return sum(seen.free for seen in self.far_ends if seen.endpoint in named)


async def look(store: Store, config: Config, name: str | None) -> Surroundings:
    """Look at everything, and at the model `name`, or at all of them. Raises ModelNotFound."""
    models, skipped = ((store.manifest(name),), ()) if name else (store.models().models, store.models().skipped)
    url, version = await _ollama()
    memory = psutil.virtual_memory()
    overlay = await asyncio.to_thread(_overlay)
    far_ends = await asyncio.to_thread(_far_ends, config, name)
    return Surroundings(
        overview=await overview(store),
        overlay=overlay,
        ollama_url=url,
        ollama_version=version,
        engines=dict(_fingerprints(config, config.engines)),
        ollamas_llama=_ollamas_llama(config, overlay),
        kernels_lack=kernels_lack(config),
        store=store,
        models=tuple(models),
        skipped=tuple(skipped),
        state_dir=state_dir(),
        free=memory.available,
        total=memory.total,
        held=dict(_held()),
        tensor_engines=dict(_fingerprints(config, [TENSOR_ENGINE])),
        config=config,
        far_ends=far_ends,
        far_held=await asyncio.to_thread(held_here, [seen.address for seen in far_ends]),
    )


def _far_ends(config: Config, name: str | None) -> tuple[FarEndSeen, ...]:
    """Of the model `name`, or of all of them."""
    each = [config.for_model(name)] if name else [config, *(config.for_model(model) for model in config.models)]
    endpoints = dict.fromkeys(endpoint for one in each for endpoint in one.engine.rpc)
    return look_at(list(endpoints), config.engine)


async def _ollama() -> tuple[str, str]:
    """Where Ollama's clients find it, and the version of what answers there."""
    host, port = parse_host(os.environ.get("OLLAMA_HOST") or "127.0.0.1:11434")
    url = FrontSettings(host=host, port=port).url
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_VERSION_SECONDS)) as session,
            session.get(f"{url}/api/version") as answer,
        ):
            return url, str((await answer.json(content_type=None))["version"])
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError, KeyError, TypeError):
        return url, ""


def _overlay() -> Mapping[str, Any] | None:
    try:
        done = subprocess.run(_OVERLAY, capture_output=True, text=True, check=False, timeout=_OVERLAY_SECONDS)
        found = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    return found if isinstance(found, dict) else None


def _fingerprints(config: Config, engines: Iterable[str]) -> Iterator[tuple[str, str]]:
    registry = Registry.built_in(config)
    for name in engines:
        try:
            verifier = registry.verifier(name)
            if isinstance(verifier, CertifiableVerifier):
                yield name, verifier.fingerprint(state_dir())
        except (PilotfishError, OSError):
            continue  # the overview has it among the engines' problems


def _ollamas_llama(config: Config, overlay: Mapping[str, Any] | None) -> str:
    """Of the library that a runner under Ollama loads where the package has none, or the config says so."""
    record = (overlay or {}).get("record")
    if not record:
        return ""
    before = os.environ.get(_LIBRARY_FOLDER)
    os.environ[_LIBRARY_FOLDER] = str(record["original"]["library"])
    try:
        return dict(_fingerprints(config, [STOCK_ENGINE])).get(STOCK_ENGINE, "")
    finally:
        os.environ.pop(_LIBRARY_FOLDER)
        if before is not None:
            os.environ[_LIBRARY_FOLDER] = before


def _held() -> Iterator[tuple[str, str]]:
    """The devices that some process holds a lease of."""
    folder = lease.lease_folder()
    for path in sorted(folder.glob("*.lease")) if folder.is_dir() else ():
        device = path.stem.replace("_", ":")
        try:
            if owner := lease.holder(device):
                yield device, str(owner)
        except PilotfishError:
            continue
