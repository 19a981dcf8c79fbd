"""What computes here, as far as it can be told without loading an engine: processor, cores and GPUs.

A certificate names it, so that one copied from another machine is of no use.
"""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
from pathlib import Path

_CPUINFO = Path("/proc/cpuinfo")
_NVIDIA = Path("/proc/driver/nvidia")
_KFD = Path("/sys/class/kfd/kfd/topology/nodes")


def device_name() -> str:
    """One line, e.g. `x86_64, Intel(R) Xeon(R) ..., 2 of 4 cores, features 1f3a...`."""
    cores = os.cpu_count() or 1
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else cores
    parts = [platform.machine(), *_processor(), f"{usable} of {cores} cores", *_gpus()]
    return ", ".join(part for part in parts if part)


def _processor() -> list[str]:
    if _CPUINFO.is_file():
        facts = _facts(_CPUINFO.read_text(encoding="utf-8", errors="replace"))
        features = " ".join(sorted(facts.get("flags", facts.get("features", "")).split()))
        digest = hashlib.sha256(features.encode()).hexdigest()[:8]
        return [facts.get("model name", facts.get("cpu part", "")), f"features {digest}"]
    if platform.system() == "Darwin":
        command = ["/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string"]
        answer = subprocess.run(command, capture_output=True, text=True, check=False)
        return [answer.stdout.strip(), platform.mac_ver()[0]]  # Metal comes with the system
    return [platform.processor()]


def _facts(text: str) -> dict[str, str]:
    """Keys and values of the first processor."""
    pairs = (line.partition(":") for line in text.split("\n\n", 1)[0].splitlines())
    return {key.strip().lower(): value.strip() for key, _, value in pairs}


def _gpus() -> list[str]:
    found = []
    for path in sorted(_NVIDIA.glob("gpus/*/information")):
        found.append(_facts(path.read_text(errors="replace")).get("model", "NVIDIA GPU"))
    if found:
        found.append(_read(_NVIDIA / "version").split("\n", 1)[0])
        found.append(f"visible {os.environ.get('CUDA_VISIBLE_DEVICES', 'all')}")
    names = (_read(node / "name").strip() for node in sorted(_KFD.glob("*")))
    return found + [name for name in names if name]


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
