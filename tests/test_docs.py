"""What the documents name is there: files, links, modules."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from pilotfish.daemon.lab.receipts.receipt_folder import damages_of, read_undamaged
from pilotfish.daemon.lab.receipts.redaction import redacted

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/*.md"))]
FOLDERS = ("hooks", "manifests", "plugins", "daemon", "ollama_overlay", "src", "etc", "tests", "docs")
ROOMS = tuple(folder.name for folder in sorted((ROOT / "daemon").iterdir()) if folder.is_dir())
THE_READERS_OWN = {"drafters/again.py"}  # what a tutorial asks its reader to write

PATH = r"[\w.<>*-]+(?:/[\w.<>*-]+)*/?"
IN_BACKTICKS = re.compile(rf"`({PATH})`")
ANYWHERE = re.compile(rf"(?<![\w/.~-])(?:{'|'.join(FOLDERS)})/{PATH}")
MODULE = re.compile(r"\bpilotfish(?:\.\w+)+")

each_document = pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.name)


def named_paths(text: str) -> set[str]:
    """Every path of the repository that a document names; below `daemon/` a room may stand first."""
    anywhere = {path.rstrip(".") for path in ANYWHERE.findall(text)}
    in_backticks = {path for path in IN_BACKTICKS.findall(text) if path.endswith(".py") or _begins_in_a_room(path)}
    return (anywhere | in_backticks) - THE_READERS_OWN


def _begins_in_a_room(path: str) -> bool:
    return "/" in path and path.partition("/")[0] in ROOMS


def is_there(path: str) -> bool:
    """`<name>` stands for any name, and a file name alone for a file anywhere."""
    pattern = re.sub(r"<\w+>", "*", path).rstrip("/")
    if "/" not in pattern:
        return any(next((ROOT / folder).rglob(pattern), None) for folder in FOLDERS)
    return any(next(base.glob(pattern), None) for base in (ROOT, ROOT / "daemon"))


def is_importable(name: str) -> bool:
    """A module, or something in one."""
    module, _, member = name.rpartition(".")
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return hasattr(importlib.import_module(module), member)


@each_document
def test_every_path_exists(document):
    assert sorted(path for path in named_paths(document.read_text(encoding="utf-8")) if not is_there(path)) == []


@pytest.mark.parametrize("folder", sorted((ROOT / "docs" / "receipts").iterdir()), ids=lambda folder: folder.name)
def test_every_receipt_is_as_it_was_written_and_shows_no_prompt_answer_or_path(folder):
    assert damages_of(folder) == []
    receipt = read_undamaged(folder)
    assert receipt == redacted(receipt)
    assert receipt.settings.redacted


@each_document
def test_every_link_leads_somewhere(document):
    linked = re.findall(r"\]\((?!https?://|#)([^)#\s]+)[^)]*\)", document.read_text(encoding="utf-8"))
    assert sorted(path for path in linked if not (document.parent / path).exists()) == []


@each_document
def test_every_module_can_be_imported(document):
    named = set(MODULE.findall(document.read_text(encoding="utf-8")))
    assert sorted(name for name in named if not name.endswith(".toml") and not is_importable(name)) == []


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("`hooks/protocols.py`, `core/costs.py`, `runner/wire/`, `plugins/drafters/<name>.py`, `reader.py`", []),
        ("`core/no_such.py`", ["core/no_such.py"]),
        ("run `pytest tests/no_such/test_it.py`.", ["tests/no_such/test_it.py"]),
        ("`no_such_module.py`", ["no_such_module.py"]),
        ("`/health`, `lib/ollama`, `~/.config/pilotfish/pilotfish.toml`, https://example.org/docs/x", []),
    ],
)
def test_a_path_that_is_not_there_is_found(text, missing):
    assert [path for path in named_paths(text) if not is_there(path)] == missing
