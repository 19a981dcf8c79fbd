"""Who may import whom, and under which name: the table in docs/design.md, enforced."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
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
            yield node.lineno, node.module or "", node.level
            if node.module == "pilotfish":
                yield from ((node.lineno, f"pilotfish.{alias.name}", 0) for alias in node.names)


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
        found += [f"{name}:{line}: plugins are reached through the registry only" for line in named_plugins(tree)]
    return found


def named_plugins(tree: ast.AST) -> Iterator[int]:
    """Lines of string constants that name a module of the built-ins."""
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and node.value.startswith("pilotfish.plugins")
        ):
            yield node.lineno


def test_the_sources_are_found() -> None:
    assert {path.relative_to(ROOT).parts[0] for path in SOURCES} == set(FOLDERS)


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_imports_follow_the_table(path: Path) -> None:
    assert faults(path.relative_to(ROOT).parts[0], relative(path), path.read_text()) == []


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
    ],
)
def test_a_fault_is_seen(folder: str, text: str) -> None:
    assert len(faults(folder, f"{folder}/example.py", text)) == 1


@pytest.mark.parametrize(
    ("folder", "text"),
    [
        ("hooks", "import pluggy, hashlib\nfrom pilotfish.hooks.types import Ack"),
        ("plugins", "import numpy\nfrom pilotfish.manifests.gguf import read_metadata"),
        ("daemon", "from pilotfish import __version__\nimport pilotfish.manifests.store"),
        ("ollama_overlay", "from pilotfish.daemon.registry.registry import Registry"),
    ],
)
def test_what_is_allowed_passes(folder: str, text: str) -> None:
    assert faults(folder, f"{folder}/example.py", text) == []


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
