"""libggml-rpc beside a libllama: found, or named with the way to get it."""

from __future__ import annotations

from importlib.metadata import version

import pytest

from pilotfish.hooks.errors import EngineError
from pilotfish.hooks.far_end import BUILT_FOR
from pilotfish.plugins._llama.rpc_library import RpcLibrary, rpc_library_in


def test_a_folder_without_it_is_named_with_the_way_to_get_it(tmp_path):
    (tmp_path / "libllama.so").touch()
    with pytest.raises(EngineError, match=r"holds no libggml-rpc.*pilotfish rpc-build.*\[engine\] libllama"):
        RpcLibrary(tmp_path)


@pytest.mark.parametrize("name", ["libggml-rpc.so", "libggml-rpc.dylib"])
def test_one_that_cannot_be_loaded_is_named(tmp_path, name):
    (tmp_path / name).write_bytes(b"no library")
    assert rpc_library_in(tmp_path) == tmp_path / name
    with pytest.raises(EngineError, match=rf"{name} cannot be loaded.*pilotfish rpc-build --output"):
        RpcLibrary(tmp_path)


def test_one_that_was_built_for_another_version_is_not_taken(tmp_path):
    (tmp_path / "libggml-rpc.so").touch()
    (tmp_path / BUILT_FOR).write_text("0.0.1\n")
    with pytest.raises(EngineError, match=r"made of llama-cpp-python 0\.0\.1, and .* run `pilotfish rpc-build` again"):
        rpc_library_in(tmp_path)
    (tmp_path / BUILT_FOR).write_text(version("llama-cpp-python"))
    assert rpc_library_in(tmp_path) == tmp_path / "libggml-rpc.so"
