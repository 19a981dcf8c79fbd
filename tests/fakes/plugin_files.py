"""Plugin files, written as a user would drop them into a folder."""

from __future__ import annotations

import textwrap
from pathlib import Path

# Registers one drafter; format it with its `name`.
GOOD = """
    from pilotfish.hooks import HistoryDrafter, hookimpl

    class Mine(HistoryDrafter):
        name = "{name}"

    @hookimpl
    def pilotfish_register_drafters(register):
        register("{name}", Mine)
"""


def write(folder: Path, name: str, text: str) -> Path:
    """`text`, dedented, as `folder/name`, writable by its owner only."""
    path = folder / name
    path.write_text(textwrap.dedent(text).lstrip("\n"))
    path.chmod(0o600)
    return path
