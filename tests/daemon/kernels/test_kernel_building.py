"""Kernels are compiled for this machine, and only what has the bits of ggml's dot products is used of them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pilotfish.daemon.kernels import kernel_building
from pilotfish.daemon.kernels.kernel_building import build_kernels, make_kernels
from pilotfish.daemon.kernels.kernels_here import SOURCE, obstacle
from pilotfish.hooks.errors import EngineError, EngineMissing, WorldError
from pilotfish.hooks.kernels import KERNEL_TYPES, KERNELS

pytestmark = pytest.mark.skipif(bool(obstacle()), reason=obstacle())
SUMS = "add(add(s[0], s[2]), add(s[1], s[3]))"


@pytest.fixture(autouse=True)
def wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels may be used, which other tests do without, and none are built."""
    monkeypatch.delenv(KERNELS)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "environment"))


def write(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Have this compiled instead of the kernels."""
    (folder / "other.cpp").write_text(text)
    monkeypatch.setattr(kernel_building, "SOURCE", folder / "other.cpp")


def test_blocks_of_every_float_type_have_the_bits_of_single_columns(tmp_path):
    path, types = build_kernels(tmp_path)
    assert types == tuple(KERNEL_TYPES)
    assert [found.name for found in path.parent.iterdir()] == [path.name]


def test_the_same_is_compiled_each_time(tmp_path):
    one, other = (build_kernels(tmp_path / name)[0] for name in ("a", "b"))
    assert one.read_bytes() == other.read_bytes()


def test_a_type_that_is_summed_in_another_order_is_left_to_ggml(tmp_path, monkeypatch):
    text = SOURCE.read_text()
    assert SUMS in text
    write(tmp_path, monkeypatch, text.replace(SUMS, "add(add(s[0], s[1]), add(s[2], s[3]))", 1))
    assert not {"F16", "F32"} & set(build_kernels(tmp_path)[1])


def test_one_wrong_number_in_a_wide_block_is_enough(tmp_path, monkeypatch):
    text, right = SOURCE.read_text(), "c[n * ldc + t * R + r] = T::total(sums);"
    assert right in text
    write(tmp_path, monkeypatch, text.replace(right, right + " if (N == 3 && r == 2) c[n * ldc + t * R + r] += 1e-3f;"))
    with pytest.raises(EngineError, match="compute nothing for llama-cpp-python"):
        build_kernels(tmp_path)
    assert list(tmp_path.glob("*batch-invariant*")) == []


def test_what_ggml_does_not_come_to_is_refused(tmp_path, monkeypatch):
    write(tmp_path, monkeypatch, SOURCE.read_text().replace("llamafile_sgemm", "another_function"))
    with pytest.raises(EngineError, match="ggml does not come to them"):
        build_kernels(tmp_path)


def test_what_does_not_compile_says_why_and_leaves_nothing(tmp_path, monkeypatch):
    write(tmp_path, monkeypatch, "no C++")
    with pytest.raises(EngineError, match=r"cannot be compiled with .*: .*error"):
        build_kernels(tmp_path)
    assert list(tmp_path.glob("*batch-invariant*")) == []


def test_without_a_compiler_or_libllama_the_remedy_is_told(tmp_path, monkeypatch):
    monkeypatch.setenv("PILOTFISH_CACHE", str(tmp_path))
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(WorldError, match="apt-get install g"):
        build_kernels(tmp_path)
    assert make_kernels().startswith("none: a C++ compiler is needed")
    monkeypatch.setattr(kernel_building, "installed_libllama", lambda: None)
    with pytest.raises(EngineMissing, match=r"pip install 'pilotfish\[llama\]'"):
        build_kernels(tmp_path)


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(WorldError, match=r"kernels cannot be written to .*file/kernels"):
        build_kernels(tmp_path / "file" / "kernels")


def test_the_config_can_leave_them_out(tmp_path, monkeypatch):
    (tmp_path / "pilotfish.toml").write_text('[engine]\nkernels = "off"\n')
    monkeypatch.setenv("PILOTFISH_CONFIG", str(tmp_path / "pilotfish.toml"))
    monkeypatch.setenv("PILOTFISH_CACHE", str(tmp_path))
    assert make_kernels() == 'none: [engine] kernels = "off"'
    monkeypatch.setenv(KERNELS, "no")
    assert make_kernels() == "none: PILOTFISH_KERNELS says so"
    assert not (tmp_path / "kernels").exists()
