"""Where plugins come from: the built-ins, installed distributions, and single files in the user's folders.

A source is found without running any of the plugin's code; `load` runs it and may raise anything.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import importlib.util
import os
import pkgutil
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from pilotfish.hooks.errors import ConfigError

ENTRY_POINTS = "pilotfish"
_BUILT_INS = "pilotfish.plugins"
_KINDS = ("drafters", "bridges", "verifiers")
_FIRST = ("identity", "vocab_map")  # bridges are asked in the order of registration, the most exact first
_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH


@dataclass(frozen=True, slots=True)
class PluginSource:
    """A plugin that was found. `load()` imports it and returns what pluggy is to register."""

    name: str  # unique among all sources
    origin: str  # "built-in", "entry point" or "folder"
    where: str  # a file or a module path, for a person
    load: Callable[[], Any]


def built_ins() -> Iterator[PluginSource]:
    """Every module in `pilotfish.plugins.{drafters,bridges,verifiers}` whose name does not begin with `_`."""
    for kind in _KINDS:
        package = importlib.import_module(f"{_BUILT_INS}.{kind}")
        names = {module.name for module in pkgutil.iter_modules(package.__path__)}
        for module in [*(name for name in _FIRST if name in names), *sorted(names.difference(_FIRST))]:
            if not module.startswith("_"):
                name = f"{package.__name__}.{module}"
                yield PluginSource(name, "built-in", name, _importer(name))


def entry_points() -> Iterator[PluginSource]:
    """What installed distributions declare in the entry point group `pilotfish`."""
    for point in sorted(
        importlib.metadata.entry_points(group=ENTRY_POINTS), key=lambda point: (point.name, point.value)
    ):
        yield PluginSource(f"{point.name} ({point.value})", "entry point", point.value, point.load)


def folder_files(folders: Sequence[Path]) -> Iterator[PluginSource]:
    """The `.py` files of `folders` in the order of their names, but for those that begin with `_` or `.`."""
    for folder in folders:
        if not os.access(folder, os.R_OK | os.X_OK) or not folder.is_dir():
            yield PluginSource(str(folder), "folder", str(folder), _missing(folder))
            continue
        for path in sorted(folder.glob("*.py")):
            if not path.name.startswith(("_", ".")):
                yield PluginSource(str(path), "folder", str(path), _file_loader(path))


def load_file(path: Path) -> ModuleType:
    """Run `path` as a module of its own. Raises ConfigError when someone else could have written it.

    The source is compiled from what was read, never taken from a bytecode cache, so a file that was replaced a
    moment ago is the one that runs.
    """
    check_trusted(path.parent)  # where the name lives; a link's file may lie elsewhere
    check_trusted(path)
    module_name = f"pilotfish_plugin_{path.stem}_{hashlib.sha256(os.fsencode(path.absolute())).hexdigest()[:12]}"
    spec = importlib.util.spec_from_file_location(module_name, path)
    assert spec is not None  # a .py file always has a loader
    module = importlib.util.module_from_spec(spec)
    code = compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
    before = sys.modules.get(module_name)
    sys.modules[module_name] = module
    try:
        exec(code, module.__dict__)
    except BaseException:
        del sys.modules[module_name]
        if before is not None:
            sys.modules[module_name] = before
        raise
    return module


def check_trusted(path: Path) -> None:
    """Raise ConfigError unless only this user (or root) can change `path`, a file or a folder."""
    real = path.resolve()
    for place in (real.parent, real) if real.is_file() else (real,):
        status = place.stat()
        if status.st_mode & _OTHERS_MAY_WRITE:
            raise ConfigError(f"{place}: others may write to it, so it is not loaded; run: chmod go-w '{place}'")
        if status.st_uid not in {os.geteuid(), 0}:
            raise ConfigError(
                f"{place}: belongs to another user (uid {status.st_uid}), so it is not loaded; "
                f"copy it, or run: chown {os.geteuid()} '{place}'"
            )


def _importer(module: str) -> Callable[[], ModuleType]:
    return lambda: importlib.import_module(module)


def _file_loader(path: Path) -> Callable[[], ModuleType]:
    return lambda: load_file(path)


def _missing(folder: Path) -> Callable[[], ModuleType]:
    def load() -> ModuleType:
        raise ConfigError(f"plugins.folders: {folder} is not a folder that can be read; create it or remove the entry")

    return load
