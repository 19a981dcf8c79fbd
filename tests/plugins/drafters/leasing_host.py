"""A host that pins .gguf files and records what is leased."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pilotfish.hooks.errors import DeviceBusy
from pilotfish.hooks.types import TargetPin
from pilotfish.manifests.pins import pin_file


class LeasingHost:
    """`busy` devices are held by somebody else; `held` are those that this host has lent at the moment."""

    def __init__(self, state_dir: Path, busy: tuple[str, ...] = ()) -> None:
        self.state_dir = state_dir
        self.busy = busy
        self.held: list[str] = []

    def pin(self, model: str) -> TargetPin:
        return pin_file(Path(model), self.state_dir)

    @contextmanager
    def lease(self, device: str) -> Iterator[None]:
        if device in self.busy:
            raise DeviceBusy(f"{device} is held by process 4711")
        self.held.append(device)
        try:
            yield
        finally:
            self.held.remove(device)
