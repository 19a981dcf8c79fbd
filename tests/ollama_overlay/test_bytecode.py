"""What a load imports is compiled when the overlay is installed, whatever kept Python from doing so before."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

from pilotfish.ollama_overlay import bytecode

COMPILED = """
import sys
from pilotfish.ollama_overlay import bytecode
bytecode.compile_for_loads()
import pilotfish.ollama_overlay.start, pilotfish.daemon.runner.lifetime
print(*sorted({m.__file__ for n, m in sys.modules.items() if n.startswith("pilotfish.") and m.__file__}), sep="\\n")
"""


def test_every_module_of_ours_that_serves_has_bytecode(tmp_path):
    """In a tree of its own for bytecode, which starts empty."""
    prefix = {"PYTHONPYCACHEPREFIX": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-P", "-c", COMPILED]
    done = subprocess.run(command, env={**os.environ, **prefix}, capture_output=True, text=True, check=True)
    sources = done.stdout.split("\n")[:-1]

    assert any(source.endswith("runner/server.py") for source in sources)
    missing = [source for source in sources if not _bytecode(Path(source), tmp_path)]
    assert not missing


def _bytecode(source: Path, prefix: Path) -> bool:
    name = Path(importlib.util.cache_from_source(source.name)).name
    folders = {source.parent, source.resolve().parent}
    return any((prefix / str(folder).lstrip("/") / name).exists() for folder in folders)


def test_what_cannot_be_run_costs_nothing(monkeypatch):
    monkeypatch.setattr(bytecode, "_own", list)
    monkeypatch.setattr(bytecode, "_engines", list)
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    bytecode.compile_for_loads()
