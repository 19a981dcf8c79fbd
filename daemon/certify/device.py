"""What computes here, as far as it can be told without loading an engine: processor, cores and GPUs.

A certificate names it, so that one copied from another machine is of no use.
"""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
from pathlib import Path

from pilotfish.daemon.registry import accelerators

_CPUINFO = Path("/proc/cpuinfo")


def device_name() -> str:
    """One line, e.g. `x86_64, Intel(R) Xeon(R) ..., 2 of 4 cores, features 1f3a...`."""
    cores = os.cpu_count() or 1
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else cores
    parts = [platform.machine(), *_processor(), f"{usable} of {cores} cores", *accelerators.shown()]
    return ", ".join(part for part in parts if part)


def _processor() -> list[str]:
    if _CPUINFO.is_file():
        facts = accelerators.facts(_CPUINFO.read_text(encoding="utf-8", errors="replace"))
        features = " ".join(sorted(facts.get("flags", facts.get("features", "")).split()))
        digest = hashlib.sha256(features.encode()).hexdigest()[:8]
        return [facts.get("model name", facts.get("cpu part", "")), f"features {digest}"]
    if platform.system() == "Darwin":
        command = ["/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string"]
        answer = subprocess.run(command, capture_output=True, text=True, check=False)
        return [answer.stdout.strip(), platform.mac_ver()[0]]  # Metal comes with the system
    return [platform.processor()]
