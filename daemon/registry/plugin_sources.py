"""Where plugins come from: the built-ins, installed distributions, and single files in the user's folders.

A source is found without running any of the plugin's code; `load` runs it and may raise anything.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import importlib.util
import linecache
import os
import pkgutil
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from pilotfish.daemon.registry import trusted_files
from pilotfish.hooks.errors import ConfigError

ENTRY_POINTS = "pilotfish"
_BUILT_INS = "pilotfish.plugins"
_KINDS = ("drafters", "bridges", "verifiers")
_FIRST = ("identity", "vocab_map")  # bridges are asked in the order of registration, the most exact first


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
    """The `.py` files of `folders` in the order of their names, but for those that begin with `_` or `.`.

    A folder that cannot be listed is a source that says so when it is loaded.
    """
    for folder in folders:
        try:
            paths = _plugin_paths(folder)
        except ConfigError as error:
            yield PluginSource(str(folder), "folder", str(folder), _raiser(error))
            continue
        for path in paths:
            yield PluginSource(str(path), "folder", str(path), _file_loader(path))


def examine(folders: Sequence[Path]) -> Iterator[tuple[Path, os.stat_result | Exception]]:
    """What `folder_files` would load: every file as it is, or why it, or its folder, would be refused."""
    for folder in folders:
        try:
            paths = _plugin_paths(folder)
        except ConfigError as error:
            yield folder, error
            continue
        for path in paths:
            try:
                with trusted_files.opened(path) as file:
                    yield path, os.fstat(file)
            except (ConfigError, OSError) as error:
                yield path, error


def _plugin_paths(folder: Path) -> list[Path]:
    """What `folder` holds that is taken for a plugin, by name. Raises ConfigError when it cannot be listed."""
    try:
        names = sorted(path.name for path in folder.iterdir())
    except (OSError, ValueError) as error:  # ValueError: a NUL, which TOML can say and no file system knows
        why = f"plugins.folders: {folder} is not a folder that can be read ({error})"
        raise ConfigError(f"{why}; create it, correct its mode or remove the entry") from error
    return [folder / name for name in names if name.endswith(".py") and not name.startswith(("_", "."))]


def load_file(path: Path) -> ModuleType:
    """Run `path` as a module of its own.

    The source is compiled from what was read of the file that was checked, never taken from a bytecode cache, so a
    file that was replaced a moment ago is the one that runs. Raises ConfigError when someone else could have written
    it, OSError when it cannot be read, and whatever the plugin raises.
    """
    source = trusted_files.read(path)
    code = compile(source, str(path), "exec", dont_inherit=True)
    module_name = f"pilotfish_plugin_{path.stem}_{hashlib.sha256(os.fsencode(path.absolute())).hexdigest()[:12]}"
    spec = importlib.util.spec_from_file_location(module_name, path)
    assert spec is not None  # a .py file always has a loader
    module = importlib.util.module_from_spec(spec)
    _remember_lines(path, source)
    before = sys.modules.get(module_name)
    sys.modules[module_name] = module
    try:
        exec(code, module.__dict__)
    except BaseException:
        sys.modules.pop(module_name, None)
        if before is not None:
            sys.modules[module_name] = before
        raise
    return module


def _remember_lines(path: Path, source: bytes) -> None:
    """Tracebacks show the lines that run, whatever the file says by then."""
    lines = importlib.util.decode_source(source).splitlines(keepends=True)
    linecache.cache[str(path)] = (len(source), None, lines, str(path))  # without a time it is never looked up again


def _importer(module: str) -> Callable[[], ModuleType]:
    return lambda: importlib.import_module(module)


def _file_loader(path: Path) -> Callable[[], ModuleType]:
    return lambda: load_file(path)


def _raiser(error: Exception) -> Callable[[], ModuleType]:
    def load() -> ModuleType:
        raise error

    return load
