"""What a libllama looks like from outside, printed as JSON: `python -m pilotfish.ollama_overlay.abi`.

llama-cpp-python describes the C structures of one build. Against another build's library that description may be
wrong, which shows as garbage or a crash, so this is a process of its own. Importing the package looks every function
up, so a missing symbol ends it too. `LLAMA_CPP_LIB_PATH` says whose library it is.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from pilotfish.hooks.structures import fits, values


def main() -> int:
    """Print the version and every default of the parameter structures."""
    from llama_cpp import llama_cpp as lib

    structures = {
        "llama_model_default_params": lib.llama_model_params,
        "llama_context_default_params": lib.llama_context_params,
        "llama_sampler_chain_default_params": lib.llama_sampler_chain_params,
    }
    described: dict[str, Any] = {"version": (lib.llama_version() or b"").decode("utf-8", "replace")}
    for function, structure in structures.items():
        described[function] = values(getattr(lib, function)())
        described[f"{function} fits"] = fits(lib._lib, function, structure)
    sys.stdout.write(json.dumps(described))
    return 0


if __name__ == "__main__":
    sys.exit(main())
