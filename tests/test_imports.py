"""The house, enforced: who may know whom (docs/design.md and docs/architecture.md), and one name for one thing."""

from __future__ import annotations

import ast
import graphlib
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("hooks", "manifests", "plugins", "daemon", "ollama_overlay")

MAY_IMPORT = {
    "hooks": {"hooks"},
    "manifests": {"manifests", "hooks"},
    "plugins": {"plugins", "hooks", "manifests"},
    "daemon": {"daemon", "hooks", "manifests"},
    "ollama_overlay": {"ollama_overlay", "hooks", "manifests", "daemon"},
}
LIBRARIES_OF_HOOKS = {"pluggy"}
# The rooms of `daemon`, from the bottom up: each knows those before it. HTTP begins with the room of that name.
ROOMS = re.findall(r"^\| `(\w+)/` \|", (ROOT / "docs" / "architecture.md").read_text(), re.MULTILINE)
LIBRARIES_OF_HTTP = {"aiohttp", "http"}
PRINTS_LIKE_A_COMMAND = {"ollama_overlay/commands.py": "pilotfish.daemon.cli.console"}  # it is one, of the overlay's
NAMES_PLUGINS = {"daemon/registry/plugin_sources.py"}  # the registry's loader: the only one that may name the built-ins

SOURCES = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def imports(tree: ast.AST) -> Iterator[tuple[int, str, int]]:
    """(line, module, level) of every import, nested and type-checking ones too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name, 0) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.module in ("pilotfish", "pilotfish.daemon"):  # what is imported from there are folders
                yield from ((node.lineno, f"{node.module}.{alias.name}", node.level) for alias in node.names)
            else:
                yield node.lineno, node.module or "", node.level


def faults(folder: str, name: str, text: str) -> list[str]:
    """What the imports of a source file in `folder` do that the table does not allow."""
    tree = ast.parse(text)
    found = []
    for line, module, level in imports(tree):
        top, _, rest = module.partition(".")
        inner = rest.partition(".")[0]
        if level:
            found.append(f"{name}:{line}: a relative import")
        elif top in FOLDERS:
            found.append(f"{name}:{line}: import pilotfish.{module}; {module} would be loaded twice")
        elif top == "pilotfish" and inner in FOLDERS and inner not in MAY_IMPORT[folder]:
            found.append(f"{name}:{line}: {folder} may not import {module}")
        elif folder == "hooks" and top != "pilotfish" and top not in LIBRARIES_OF_HOOKS | sys.stdlib_module_names:
            found.append(f"{name}:{line}: hooks may import nothing but the standard library and pluggy, not {module}")
    if folder not in ("plugins", "hooks") and name not in NAMES_PLUGINS:
        named = lines_naming("pilotfish.plugins", tree)
        found += [f"{name}:{line}: plugins are reached through the registry only" for line in named]
    if folder == "daemon":
        named = lines_naming("ollama_overlay", tree)
        found += [f"{name}:{line}: the daemon does not know that there is an overlay" for line in named]
    return found + list(faults_of_rooms(name, tree))


def lines_naming(what: str, tree: ast.AST) -> list[int]:
    """Lines of the string constants in which `what` stands."""
    constants = [node for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    return [node.lineno for node in constants if isinstance(node.value, str) and what in node.value]


def room_of(module: str) -> str:
    """The room of the daemon that a module is in; empty outside."""
    parts = module.split(".")
    return parts[2] if parts[:2] == ["pilotfish", "daemon"] and len(parts) > 2 else ""


def faults_of_rooms(name: str, tree: ast.AST) -> Iterator[str]:
    """What a module knows of rooms that are none of its business."""
    own = room_of("pilotfish." + name.removesuffix(".py").replace("/", "."))
    known = ROOMS[: ROOMS.index(own) + 1] if own in ROOMS else [room for room in ROOMS if room != "cli"]
    for line, module, _ in imports(tree):
        room = room_of(module)
        if room in ROOMS and room not in known and module != PRINTS_LIKE_A_COMMAND.get(name):
            yield f"{name}:{line}: no business of {room}/, see the rooms in docs/architecture.md"
        elif module.partition(".")[0] in LIBRARIES_OF_HTTP and "http" not in known:
            yield f"{name}:{line}: {own}/ knows no HTTP, and so not {module}"


def test_the_sources_are_found() -> None:
    assert {path.relative_to(ROOT).parts[0] for path in SOURCES} == set(FOLDERS)


def test_imports_follow_the_table() -> None:
    found = (faults(path.relative_to(ROOT).parts[0], relative(path), path.read_text()) for path in SOURCES)
    assert [fault for faults_of_one in found for fault in faults_of_one] == []


@pytest.mark.parametrize(
    ("folder", "text"),
    [
        ("hooks", "import numpy"),
        ("hooks", "from pilotfish.daemon import config"),
        ("manifests", "import pilotfish.daemon.config.files"),
        ("plugins", "from pilotfish.ollama_overlay import tree"),
        ("plugins", "def f():\n    from pilotfish import daemon"),
        ("daemon", "from pilotfish.plugins.drafters.suffix import SuffixDrafter"),
        ("daemon", "from pilotfish import ollama_overlay"),
        ("daemon", "import importlib\nimportlib.import_module('pilotfish.plugins.drafters.suffix')"),
        ("ollama_overlay", "import hooks"),
        ("ollama_overlay", "from daemon.config import Config"),
        ("daemon", "from .config import Config"),
        ("daemon", "from . import config"),
        ("daemon", "command = ['-m', 'pilotfish.ollama_overlay.start']"),
        ("daemon/core", "from pilotfish.daemon.http.json_text import dumps"),
        ("daemon/core", "import aiohttp"),
        ("daemon/drafters", "import http.client"),
        ("daemon/config", "from pilotfish.daemon import registry"),
        ("daemon/control", "def f():\n    import pilotfish.daemon.runner.main"),
        ("daemon/runner/wire", "from pilotfish.daemon.front.options import Options"),
        ("daemon/lab", "from pilotfish.daemon.cli.console import out"),
        ("ollama_overlay", "from pilotfish.daemon.cli.console import out"),
        ("ollama_overlay", "from pilotfish.daemon import cli"),
    ],
)
def test_a_fault_is_seen(folder: str, text: str) -> None:
    assert len(faults(folder.partition("/")[0], f"{folder}/example.py", text)) == 1


@pytest.mark.parametrize(
    ("folder", "text"),
    [
        ("hooks", "import pluggy, hashlib\nfrom pilotfish.hooks.types import Ack"),
        ("plugins", "import numpy\nfrom pilotfish.manifests.gguf import read_metadata"),
        ("daemon", "from pilotfish import __version__\nimport pilotfish.manifests.store"),
        ("ollama_overlay", "from pilotfish.daemon.registry.registry import Registry"),
        ("daemon/core", "from pilotfish.daemon.drafters.pool import DrafterPool"),
        (
            "daemon/runner/wire",
            "import pilotfish.daemon.runner.main\nfrom pilotfish.daemon import http",
        ),
        ("daemon/cli", "import aiohttp\nfrom pilotfish.daemon.lab import subjects"),
    ],
)
def test_what_is_allowed_passes(folder: str, text: str) -> None:
    assert faults(folder.partition("/")[0], f"{folder}/example.py", text) == []


def test_every_room_is_in_the_table() -> None:
    assert sorted(ROOMS) == sorted(path.parent.name for path in (ROOT / "daemon").glob("*/__init__.py"))


def folder_of(module: str) -> str:
    """The folder of a module, or of what holds the name that is imported; empty outside of the project."""
    if not re.match(rf"pilotfish\.({'|'.join(FOLDERS)})\b", module):
        return ""
    path = ROOT.joinpath(*module.split(".")[1:])
    while not (path.is_dir() or path.with_suffix(".py").is_file()):
        path = path.parent
    return relative(path if path.is_dir() else path.parent)


def folders_known(tree: ast.AST) -> set[str]:
    """The folders of the project from which something is imported."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {folder_of(alias.name) for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {folder_of(f"{node.module}.{alias.name}") for alias in node.names}
    return found - {""}


def cycle(known: Mapping[str, set[str]]) -> list[str]:
    """Folders each of which knows the next, the last being the first; none if there is no cycle."""
    try:
        graphlib.TopologicalSorter(known).prepare()
    except graphlib.CycleError as error:
        found: list[str] = error.args[1]
        return found[::-1]
    return []


def test_there_is_no_cycle_between_folders() -> None:
    known: dict[str, set[str]] = {}
    for path in SOURCES:
        folder = relative(path.parent)
        known.setdefault(folder, set()).update(folders_known(ast.parse(path.read_text())) - {folder})
    assert cycle(known) == []


def test_a_cycle_is_seen() -> None:
    text = "if TYPE_CHECKING:\n    from pilotfish.daemon.lab import fakes, subjects\nimport pilotfish.hooks.types, re"
    assert folders_known(ast.parse(text)) == {"daemon/lab", "daemon/lab/fakes", "hooks"}
    assert cycle({"a": {"b", "c"}, "b": {"c"}}) == []
    assert cycle({"a": {"b"}, "b": {"a"}, "c": {"a"}}) in (["a", "b", "a"], ["b", "a", "b"])


def twice(places: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """The names that stand in more than one place."""
    found: dict[str, list[str]] = {}
    for name, place in places:
        found.setdefault(name, []).append(place)
    return {name: where for name, where in found.items() if len(where) > 1}


def test_no_file_name_occurs_twice_in_the_daemon() -> None:
    files = [path for path in SOURCES if path.is_relative_to(ROOT / "daemon")]
    assert twice((path.name, relative(path)) for path in files if not path.name.startswith("__")) == {}


def test_no_class_name_occurs_twice() -> None:
    classes = (
        (node.name, relative(path))
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    )
    assert twice(classes) == {}


IMPORT_EVERYTHING = """
import importlib, json, os, pkgutil, sys
import pilotfish
needs = {}
for module in pkgutil.walk_packages(pilotfish.__path__, "pilotfish."):
    if not module.name.endswith("__main__"):
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as error:
            needs[module.name] = error.name.partition(".")[0]
files = {}
for name, module in list(sys.modules.items()):
    if file := getattr(module, "__file__", None):
        files.setdefault(os.path.realpath(file), []).append(name)
print(json.dumps([files, needs]))
"""
OPTIONAL = {"mlx", "mlx_lm", "tinygrad"}  # engines of drafters, which the test extra leaves out


def test_every_source_file_loads_under_one_module_name() -> None:
    result = subprocess.run(
        [sys.executable, "-c", IMPORT_EVERYTHING], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    files, needs = json.loads(result.stdout)
    assert set(needs.values()) <= OPTIONAL, needs
    names = {Path(file): found for file, found in files.items()}
    for path in SOURCES:
        if path.name == "__main__.py" or "pilotfish." + ".".join(path.relative_to(ROOT).with_suffix("").parts) in needs:
            continue
        assert len(names.get(path, [])) == 1, f"{relative(path)} was loaded as {names.get(path)}"
        assert names[path][0].startswith("pilotfish.")
