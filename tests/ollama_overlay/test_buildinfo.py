"""Which build of Ollama a binary is: read from its bytes, asked where they name no version."""

from __future__ import annotations

from pathlib import Path

import pytest

from pilotfish.hooks.errors import UsageError
from pilotfish.ollama_overlay.buildinfo import Build, read_build
from tests.ollama_overlay.fake_ollama import go_binary

REVISION = "fb3076099b9c0a1d2e3f4a5b6c7d8e9f00112233"
RELEASE_FLAGS = '-w -s "-X=github.com/ollama/ollama/version.Version=0.34.1" "-X=github.com/ollama/ollama/server.mode=x"'


@pytest.fixture
def binary(tmp_path):
    def write(data: bytes) -> Path:
        path = tmp_path / "ollama"
        path.write_bytes(data)
        path.chmod(0o755)
        return path

    return write


@pytest.mark.parametrize(
    ("settings", "module_version", "build"),
    [
        ("", "v0.33.2", Build("0.33.2")),
        (
            f"build\tvcs=git\nbuild\tvcs.revision={REVISION}\nbuild\tvcs.modified=false\n",
            "v0.33.2",
            Build("0.33.2", REVISION),
        ),
        (
            f"build\tvcs.revision={REVISION}\nbuild\tvcs.modified=true\n",
            "v0.33.2+dirty",
            Build("0.33.2", REVISION, dirty=True),
        ),
        (f'build\t-ldflags="{RELEASE_FLAGS.replace(chr(34), chr(92) + chr(34))}"\n', "(devel)", Build("0.34.1")),
        ("", "v0.33.3-0.20260102030405-fb3076099b9c", Build()),
        ("", "(devel)", Build()),
    ],
    ids=["module", "revision", "dirty", "linked version", "between releases", "development"],
)
def test_what_the_linker_left_is_read(binary, settings, module_version, build):
    assert read_build(binary(go_binary(settings, module_version))) == build


def test_a_build_that_names_no_version_in_its_information_is_asked(binary, tmp_path):
    # A shell runs what no kernel can load; this one prints, as Ollama does when it reaches no server.
    script = b'#!/bin/sh\necho "Warning: client version is 0.35.0"\nexit 0\n'
    path = binary(script + bytes(-len(script) % 16) + go_binary(version="(devel)"))

    assert read_build(path).version == "0.35.0"


@pytest.mark.parametrize(
    "data",
    [b"", b"#!/bin/sh\nexec /opt/ollama\n", b"\xff Go buildinf:", go_binary(path="example.com/other"), bytes(100_000)],
    ids=["empty", "script", "cut short", "another program", "zeros"],
)
def test_what_is_not_ollama_is_refused_with_the_remedy(binary, data):
    with pytest.raises(UsageError, match="--ollama"):
        read_build(binary(data))


@pytest.mark.parametrize("cut", [1, 40, 60, 90])
def test_a_block_that_is_cut_off_is_no_block(binary, cut):
    whole = go_binary()
    start = whole.rindex(b"\xff Go buildinf:")
    with pytest.raises(UsageError):
        read_build(binary(whole[: start + cut]))


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(UsageError, match="cannot be read"):
        read_build(tmp_path / "nothing")


def test_a_build_says_what_it_is():
    assert str(Build("0.33.2", REVISION, dirty=True)) == "0.33.2 (revision fb3076099b9c, with local changes)"
    assert str(Build()) == "development build (revision unknown)"
