"""Whether the installed ik_llama.cpp may be loaded into this process.

It is looked at from a process of its own first (see `abi`). The verdict "it fits" is remembered until a file changes;
a library that does not fit is looked at again at every load, because what it lacks may have been installed since.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pilotfish.hooks.errors import EngineError
from pilotfish.manifests.remembered import Remembered, stamp_of
from pilotfish.plugins._ik.build import INSTALL, MADE_FOR, PACKAGE, fingerprint, library
from pilotfish.plugins._ik.child import ChildFailed, ask

# every default whose place tells one layout from another; what depends on devices is left out
DEFAULTS: dict[str, dict[str, Any]] = {
    "llama_model_default_params": {
        "type_k": 1, "type_v": 1, "n_seq_max": 1, "n_ubatch": 512, "type_k_first": 1, "type_v_last": 1,
        "n_k_first": -1, "n_k_last": -1, "n_v_first": -1, "n_v_last": -1, "vocab_only": False, "use_mmap": True,
        "use_mlock": False, "check_tensors": False, "repack_tensors": False, "merge_qkv": False, "mtp": False,
        "dry_run": False, "flash_attn": True,
    },
    "llama_context_default_params": {
        "seed": 4294967295, "n_ctx": 512, "n_batch": 2048, "n_ubatch": 512, "n_seq_max": 1, "max_extra_alloc": 256,
        "rope_scaling_type": -1, "pooling_type": -1, "attention_type": -1, "yarn_ext_factor": -1.0,
        "defrag_thold": -1.0, "type_k": 1, "type_v": 1, "type_reduce": 1, "type_k_first": 1, "type_v_last": 1,
        "n_k_first": -1, "n_v_last": -1, "logits_all": False, "embeddings": False, "offload_kqv": True,
        "flash_attn": True, "mla_attn": 3, "attn_max_batch": 0, "fused_moe_up_gate": True, "fused_up_gate": True,
        "fused_mmad": True, "graph_reuse": True, "min_experts": -1, "k_cache_hadamard": False,
        "v_cache_hadamard": False, "scheduler_async": False, "mtp": False, "mtp_op_type": 0,
    },
}  # fmt: skip

# ik_llama.cpp's name of a feature, and the kernel's name of what the processor needs for it
PROCESSOR_FLAGS = {
    "AVX": "avx", "AVX2": "avx2", "AVX_VNNI": "avx_vnni", "AVX512": "avx512f", "AVX512_VBMI": "avx512vbmi",
    "AVX512_VNNI": "avx512_vnni", "AVX512_BF16": "avx512_bf16", "FMA": "fma", "F16C": "f16c",
}  # fmt: skip
_FEATURE = re.compile(r"(\w+) = 1")


def check(state_dir: Path | None) -> None:
    """Raise EngineError, with the cause and the remedy, unless the library may be loaded."""
    path, remembered = library(), Remembered(state_dir)
    stamp, fact = stamp_of(path), f"fits {MADE_FOR} {fingerprint(state_dir)} {_processor_flags()}"
    if remembered.get(path, fact, stamp) is True:
        return
    described = describe()
    if why := unfit(described):
        raise EngineError(f"ik_llama.cpp ({path}) cannot be used: {why}")
    remembered.put(path, fact, stamp, True)
    if not described["offloads"]:
        remembered.put(path, _on_processors(state_dir), stamp, True)


def accelerators(state_dir: Path | None) -> tuple[str, ...]:
    """What the library may put layers on, by ggml's names. A build for processors only is remembered as one.

    Raises EngineError.
    """
    path = library()
    if Remembered(state_dir).get(path, _on_processors(state_dir), stamp_of(path)) is True:
        return ()
    return tuple(describe()["accelerators"])


def _on_processors(state_dir: Path | None) -> str:
    return f"computes on processors only: {fingerprint(state_dir)}"


def describe() -> dict[str, Any]:
    """What `abi` prints. Raises EngineError when it fails, crashes or takes too long, with what it said last."""
    try:
        return ask("pilotfish.plugins._ik.abi")
    except ChildFailed as error:
        raise EngineError(f"ik_llama.cpp ({library()}) cannot be loaded: {_cause_and_remedy(error)}") from error


_LEAVE = "leave models to libllama here: pip install 'pilotfish[llama]'"
_REMEDY = f"install {PACKAGE} {MADE_FOR} for this machine: pip install --force-reinstall {PACKAGE}=={MADE_FOR}"


def _cause_and_remedy(failed: ChildFailed) -> str:
    if failed.crash == signal.SIGILL.name:
        return f"it was built for another processor; {_LEAVE}"
    if failed.crash == signal.SIGBUS.name:
        return f"a file of it is cut short; {_REMEDY}"
    return f"{failed}; {_REMEDY}"


def unfit(described: Mapping[str, Any]) -> str:
    """Why a library of this description does not fit; empty when it does."""
    if missing := _missing_features(str(described.get("features", ""))):
        return f"it was built for {', '.join(missing)}, which this processor lacks; {_LEAVE}"
    for function, expected in DEFAULTS.items():
        found = described.get(function, {})
        changed = [name for name, value in expected.items() if found.get(name) != value]
        if changed or not described.get(f"{function} fits"):
            how = f"other defaults of {', '.join(changed[:4])}" if changed else "a larger structure"
            return f"{function} has {how}, so it is not the one of {PACKAGE} {MADE_FOR}; install that: {INSTALL}"
    return ""


def _missing_features(features: str) -> list[str]:
    here = _processor_flags().split()
    wanted = (PROCESSOR_FLAGS.get(name) for name in _FEATURE.findall(features))
    return [flag for flag in wanted if here and flag and flag not in here]


def _processor_flags() -> str:
    """Those of PROCESSOR_FLAGS that this processor has; empty where the kernel does not say."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return ""
    flags = next((line.split() for line in text.splitlines() if line.startswith("flags")), [])
    return " ".join(sorted(set(flags) & set(PROCESSOR_FLAGS.values())))
