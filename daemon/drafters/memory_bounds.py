"""How much memory this process may still have: the system's, its control groups', its address space, a device's.

Several bounds hold at once, and none of them knows of the others: in a container the system may have 60 GB available
while the container's limit leaves 1.
"""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import psutil

from pilotfish.hooks.types import DeviceMemory

CGROUPS = Path("/sys/fs/cgroup")
OWN_CGROUPS = Path("/proc/self/cgroup")
CPU = "cpu"
_UNLIMITED = 1 << 60  # bytes; version 1 writes "no limit" as the largest number of whole pages
_UNIFIED = ("metal", "mtl")  # Apple's devices, as the engines call them


@dataclass(frozen=True, slots=True)
class Bound:
    """Something that limits the memory this process may have, in bytes.

    `available` counts files that are only cached as available, as the kernel does. With `lends` it therefore also
    counts what the target's mapped weights need, and what it asked for and has not touched yet.
    """

    what: str  # for people, with its article
    available: int
    total: int
    lends: bool


DeviceFigures = Callable[[str], DeviceMemory | None]  # by a device's name


def no_figures(device: str) -> None:
    """Of an engine that knows of no device."""


def bounds_for(device: str, target_device: str = CPU, figures: DeviceFigures = no_figures) -> list[Bound]:
    """What bounds the memory of `device`, where the target computes on `target_device`.

    `figures` are the engine's own; of a device that it does not know nothing is said, unless its name is one that
    shares the system's memory.
    """
    found = None if device == CPU else figures(device)
    own = [Bound(f"the memory of {device}", found.free, found.total, lends=False)] if found else []
    if not _is_shared(device, found):
        return own
    lends = _is_shared(target_device, None if target_device == CPU else figures(target_device))
    return [*own, system(lends), *control_groups(lends), *address_space()]


def _is_shared(device: str, found: DeviceMemory | None) -> bool:
    if found is not None:
        return found.shared
    return device == CPU or device.lower().startswith(_UNIFIED)


def system(lends: bool = True) -> Bound:
    """The whole machine's memory, without swap."""
    memory = psutil.virtual_memory()
    return Bound("the system's memory", memory.available, memory.total, lends)


def address_space() -> Iterator[Bound]:
    """`ulimit -v`, if one is set. What the target mapped and asked for is counted as taken already."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY:
        taken = psutil.Process().memory_info().vms
        yield Bound("the address space (ulimit -v)", max(0, limit - taken), limit, lends=False)


def control_groups(lends: bool = True, root: Path = CGROUPS, own: Path = OWN_CGROUPS) -> Iterator[Bound]:
    """The limits of the control group this process is in and of those around it, in version 1 and 2."""
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return  # no Linux
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            files, base = _VERSION_2, root
        elif "memory" in controllers.split(","):
            files, base = _VERSION_1, root / "memory"
        else:
            continue
        for group in _upwards(path):
            bound = files.read(base / group.relative_to("/"), str(group), lends)
            if bound:
                yield bound


def _upwards(path: str) -> Iterator[PurePosixPath]:
    """The group and those around it. In a container the outer ones' folders are not there, the root's is its own."""
    group = PurePosixPath("/", path.lstrip("/"))
    if ".." not in group.parts:
        yield from (group, *group.parents)


@dataclass(frozen=True, slots=True)
class _Files:
    """What a version of control groups calls its files."""

    limits: tuple[str, ...]
    usage: str
    cached: tuple[str, ...]  # lines of memory.stat

    def read(self, folder: Path, name: str, lends: bool) -> Bound | None:
        limits = [limit for file in self.limits if (limit := _number(folder / file)) is not None]
        usage = _number(folder / self.usage)
        if not limits or usage is None or min(limits) >= _UNLIMITED:
            return None
        left = min(limits) - max(0, usage - self._cached_bytes(folder))
        return Bound(f"the memory limit of control group {name}", max(0, left), min(limits), lends)

    def _cached_bytes(self, folder: Path) -> int:
        try:
            lines = (folder / "memory.stat").read_text().split("\n")
        except OSError:
            return 0
        return sum(int(value) for key, _, value in (line.partition(" ") for line in lines) if key in self.cached)


_VERSION_1 = _Files(("memory.limit_in_bytes",), "memory.usage_in_bytes", ("total_inactive_file", "total_active_file"))
_VERSION_2 = _Files(("memory.max", "memory.high"), "memory.current", ("inactive_file", "active_file"))


def _number(file: Path) -> int | None:
    """None where the file is not there or says `max`."""
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return None


def private_bytes() -> int:
    """Memory that only this process holds, without the files it maps."""
    process = psutil.Process()
    info = process.memory_info()
    shared = getattr(info, "shared", None)  # Linux
    return info.rss - shared if shared is not None else process.memory_full_info().uss
