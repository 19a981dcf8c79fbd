"""The manifests that models had when they were last pinned, by name: `pins.json` in the state folder.

A tag that was pulled or created again has another manifest. The load that finds this out decodes plainly and takes
the new pin, so the load after it speculates again.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from pilotfish.manifests.manifest import Manifest
from pilotfish.manifests.remembered import write_atomically

FILE_NAME = "pins.json"


class PinnedManifests:
    """Reads and writes the file. One that is missing or damaged counts as empty."""

    def __init__(self, state_dir: Path) -> None:
        self._path = state_dir / FILE_NAME

    def mismatch(self, users: Sequence[Manifest]) -> str:
        """Why none of the models that share a weight file is what was pinned; empty when one is, or is new."""
        known = self._read()
        changed = [user for user in users if known.get(user.name.full, user.digest) != user.digest]
        if not users or len(changed) < len(users):
            return ""
        first = changed[0]
        return (
            f"{first.name.short} is not what was pinned (manifest {known[first.name.full][:12]}, now "
            f"{first.digest[:12]}): it was pulled or created again"
        )

    def pin(self, users: Sequence[Manifest]) -> None:
        """Remember the manifests as they are. Raises OSError when the file cannot be written."""
        known = self._read()
        updated = known | {user.name.full: user.digest for user in users}
        if updated != known:
            write_atomically(self._path, json.dumps(updated, indent=1).encode())

    def _read(self) -> dict[str, str]:
        try:
            table = json.loads(self._path.read_bytes())
        except (OSError, ValueError, RecursionError):
            return {}
        if not isinstance(table, dict):
            return {}
        return {name: digest for name, digest in table.items() if isinstance(digest, str)}
