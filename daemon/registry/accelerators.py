"""The accelerators that this machine shows, as far as it can be told without an engine."""

from __future__ import annotations

import os
from pathlib import Path

_NVIDIA = Path("/proc/driver/nvidia")
_KFD = Path("/sys/class/kfd/kfd/topology/nodes")


def shown() -> list[str]:
    """Their names; NVIDIA's are followed by the driver's version and which of them may be used."""
    found = []
    for path in sorted(_NVIDIA.glob("gpus/*/information")):
        found.append(facts(path.read_text(errors="replace")).get("model", "NVIDIA GPU"))
    if found:
        found.append(_read(_NVIDIA / "version").split("\n", 1)[0])
        found.append(f"visible {os.environ.get('CUDA_VISIBLE_DEVICES', 'all')}")
    names = (_read(node / "name").strip() for node in sorted(_KFD.glob("*")))
    return found + [name for name in names if name]


def facts(text: str) -> dict[str, str]:
    """Keys and values of the first paragraph of one of the kernel's tables."""
    pairs = (line.partition(":") for line in text.split("\n\n", 1)[0].splitlines())
    return {key.strip().lower(): value.strip() for key, _, value in pairs}


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
