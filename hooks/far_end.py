"""What computes layers of models that other machines load. `pilotfish.hooks.protocols` has the whole contract."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

BUILT_FOR = "built-for.txt"  # beside copied libraries: the version of the package that they were taken from


@dataclass(frozen=True, slots=True)
class FarEndOptions:
    """What a far end computes with. `folder` has the engine's libraries, None stands for those `load` would use."""

    port: int  # of 127.0.0.1, where its server listens
    threads: int | None = None  # None: physical cores
    memory: int | None = None  # bytes that models may take on each device; None: what there is
    cache: Path | None = None  # a folder for weights that were sent; None: none are kept
    devices: tuple[str, ...] = ()  # the engine's names; empty: its accelerators, or the processor where there is none
    folder: Path | None = None
    state_dir: Path | None = None


@runtime_checkable
class ComputesForOthers(Protocol):
    """A verifier whose engine can be a far end: a server that speaks llama.cpp's RPC protocol."""

    def far_end(self, wanted: FarEndOptions, /) -> tuple[str, ...]:
        """The command of a process that is one; loads nothing. Raises EngineError, with the remedy, where none can be.

        The process says on its standard output in one line of JSON what it computes with: `engine`, `fingerprint`,
        `threads`, and `devices` with `name`, `description`, `free` and `total` (bytes) each. It answers every line of
        its standard input with `devices` as they are then, also while it computes, and ends with its standard input.
        """
        ...
