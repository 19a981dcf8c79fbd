"""The numbers of the GGUF format, from the `gguf` package but without the rest of it.

To import the package is to import its readers, writers, numpy and yaml: 60 to 170 ms of every load and of every
command that only looks at a header.
"""

from __future__ import annotations

import importlib.util
import sys
from importlib.machinery import PathFinder
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFValueType, LlamaFileType

__all__ = ["GGML_QUANT_SIZES", "GGMLQuantizationType", "GGUFValueType", "LlamaFileType"]


def _constants() -> ModuleType:
    """`gguf.constants`, which imports nothing but enums. Raises ImportError where the package is not installed."""
    if (loaded := sys.modules.get("gguf.constants")) is not None:
        return loaded
    package = importlib.util.find_spec("gguf")  # finds the package without importing it
    found = PathFinder.find_spec("gguf.constants", package.submodule_search_locations) if package else None
    if found is None or found.loader is None:
        raise ImportError("the package gguf is not installed; run: pip install gguf")
    module = importlib.util.module_from_spec(found)
    sys.modules["gguf.constants"] = module  # what imports the package later has the same enums, not a second copy
    vars(module)["constants"] = module  # and, as it takes all names from here, its own attribute of this name
    try:
        found.loader.exec_module(module)
    except BaseException:
        del sys.modules["gguf.constants"]
        raise
    return module


if not TYPE_CHECKING:
    _numbers = _constants()
    GGML_QUANT_SIZES = _numbers.GGML_QUANT_SIZES
    GGMLQuantizationType = _numbers.GGMLQuantizationType
    GGUFValueType = _numbers.GGUFValueType
    LlamaFileType = _numbers.LlamaFileType
