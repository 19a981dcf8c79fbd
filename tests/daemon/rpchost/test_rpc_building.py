"""What `pilotfish rpc-build` says when it cannot, and what it keeps. That the result computes is `test_far_ends`."""

from __future__ import annotations

import io
import tarfile
from importlib.metadata import version
from pathlib import Path

import pytest

from pilotfish.daemon.kernels import kernels_here
from pilotfish.daemon.kernels.kernels_here import PACKAGE
from pilotfish.daemon.rpchost.rpc_building import build
from pilotfish.daemon.rpchost.rpc_sources import sources_of
from pilotfish.hooks.errors import EngineError, EngineMissing, UsageError, WorldError

NEEDED = "vendor/llama.cpp/ggml/src/ggml-rpc/ggml-rpc.cpp"


def package(folder: Path, number: str, *files: str) -> Path:
    """A source package with these files, each of which says that it is no C++."""
    path = folder / "package.tar.gz"
    with tarfile.open(path, "w:gz") as written:
        for name in files:
            member = tarfile.TarInfo(f"llama_cpp_python-{number}/{name}")
            member.size = 6
            written.addfile(member, io.BytesIO(b"no C++"))
    return path


def test_of_a_source_package_only_what_is_needed_is_kept_and_it_is_opened_once(tmp_path):
    other = ("README.md", "vendor/llama.cpp/ggml/src/ggml-cuda/big.cpp", "vendor/llama.cpp/ggml/include/ggml.h")
    source = package(tmp_path, "1.2.3", NEEDED, *other)
    said: list[str] = []
    found = sources_of("1.2.3", tmp_path / "cache", source, said.append)
    kept = sorted(path.relative_to(found).as_posix() for path in found.rglob("*") if path.is_file())
    assert kept == ["include/ggml.h", "src/ggml-rpc/ggml-rpc.cpp"]
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["llama-rpc-sources-1.2.3"]
    source.unlink()
    assert sources_of("1.2.3", tmp_path / "cache", None, said.append) == found
    assert said == []


def test_a_source_package_of_another_version_is_refused(tmp_path):
    source = package(tmp_path, "1.2.4", NEEDED)
    with pytest.raises(WorldError, match=r"is not the source package of llama-cpp-python 1\.2\.3"):
        sources_of("1.2.3", tmp_path / "cache", source, print)
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_file_that_is_no_package_is_named(tmp_path):
    (tmp_path / "x.tar.gz").write_bytes(b"<html>")
    with pytest.raises(WorldError, match=r"x\.tar\.gz cannot be read as a source package"):
        sources_of("1.2.3", tmp_path / "cache", tmp_path / "x.tar.gz", print)


def test_without_a_network_the_other_way_is_told(tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(WorldError, match=r"cannot be downloaded: .*or download llama_cpp_python-1\.2\.3\.tar\.gz"):
        sources_of("1.2.3", tmp_path / "cache", None, lambda line: None)


def test_without_a_compiler_it_says_how_to_get_one(tmp_path, monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(WorldError, match=r"there is no no-such-compiler.*apt-get install g"):
        build(tmp_path / "out", tmp_path, None, print)


def test_without_llama_cpp_python_it_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setattr(kernels_here.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(EngineMissing, match="pip install 'pilotfish"):
        build(tmp_path / "out", tmp_path, None, print)


def test_a_folder_with_something_else_is_left_alone(tmp_path):
    (tmp_path / "thesis.txt").touch()
    with pytest.raises(UsageError, match=r"--output: .* holds something else"):
        build(tmp_path, tmp_path / "cache", None, print)


def test_what_does_not_compile_leaves_nothing_behind(tmp_path):
    source = package(tmp_path, version(PACKAGE), NEEDED, NEEDED.replace("ggml-rpc.cpp", "transport.cpp"))
    with pytest.raises(EngineError, match=r"cannot be compiled with .*: .*error"):
        build(tmp_path / "made" / "out", tmp_path / "cache", source, lambda line: None)
    assert list((tmp_path / "made").iterdir()) == []
