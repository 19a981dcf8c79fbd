"""What the installed ik_llama.cpp looks like from outside, printed as JSON: `python -m pilotfish.plugins._ik.abi`.

A process of its own, because a library that was built for another processor, or whose structures are larger than
described, can end the process that touches it.
"""

from __future__ import annotations

import sys
from typing import Any

from pilotfish.hooks.structures import fits, values
from pilotfish.plugins._ik.child import answer, leave_no_core

_NO_ACCELERATORS = ("CPU", "BLAS", "RPC")


def main() -> int:
    """Print the features of the build, what it may put layers on, and every default of the parameter structures."""
    leave_no_core()
    from ik_llama_cpp import _ctypes_api as api

    from pilotfish.plugins._ik.functions import LogCallback, describe

    library = describe(api._lib)
    quiet = LogCallback(lambda level, text, user: None)
    library.llama_log_set(quiet, None)
    api.llama_backend_init()
    described: dict[str, Any] = {"features": library.llama_print_system_info().decode("utf-8", "replace")}
    described["offloads"] = bool(library.llama_supports_gpu_offload())  # settled when it was built
    described["accelerators"] = _accelerators(library) if described["offloads"] else []
    for function, structure in (
        ("llama_model_default_params", api.llama_model_params),
        ("llama_context_default_params", api.llama_context_params),
    ):
        described[function] = values(getattr(api, function)())
        described[f"{function} fits"] = fits(library, function, structure)
    return answer(described)


def _accelerators(library: Any) -> list[str]:
    """ggml's names of the devices that layers may be put on."""
    names = (library.ggml_backend_reg_get_name(i) for i in range(library.ggml_backend_reg_get_count()))
    return [text for name in names if (text := name.decode("utf-8", "replace")) not in _NO_ACCELERATORS]


if __name__ == "__main__":
    sys.exit(main())
