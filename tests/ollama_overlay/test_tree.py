"""The overlaid tree: made, left alone, repaired, refused, removed; the original is never touched."""

from __future__ import annotations

import hashlib
import os
import plistlib
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from click.testing import CliRunner

from pilotfish.daemon.cli import cli
from pilotfish.hooks.errors import UsageError
from pilotfish.ollama_overlay import commands, installation, service, tree
from pilotfish.ollama_overlay.service import (
    launchd_agent,
    launchd_daemon_agent,
    permanent_lines,
    systemd_drop_in,
    systemd_unit,
)
from tests.ollama_overlay import fake_ollama

ETC = Path(__file__).resolve().parents[2] / "etc"


@pytest.fixture
def original(tmp_path):
    """The user's own Ollama; fails if a test changed a byte, a mode or a name of it."""
    ollama = fake_ollama.install(tmp_path / "usr")
    return ollama


@pytest.fixture
def prefix(tmp_path):
    return tmp_path / "data" / "ollama"


def contents(folder):
    """Every path below with its mode and what it holds."""
    return {
        path.relative_to(folder): (path.lstat().st_mode, path.readlink() if path.is_symlink() else digest(path))
        for path in folder.rglob("*")
    }


def digest(path):
    return "" if path.is_dir() else hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_tree_holds_the_binary_links_and_the_shim(original, prefix):
    record, changed = tree.install(prefix, original)
    library = prefix / "lib" / "ollama"
    source = original.parent.parent / "lib" / "ollama"

    assert changed
    assert record.build.version == "0.33.2"
    assert not (prefix / "bin" / "ollama").is_symlink()
    assert (prefix / "bin" / "ollama").samefile(original)
    for name in ("libllama.so.0", "libllama.so.0.6", "llama-quantize", "cuda_v13/libggml-cuda.so"):
        assert (library / name).readlink() == source / name
    assert not (library / "llama-server").is_symlink()
    assert os.access(library / "llama-server", os.X_OK)
    assert sys.executable in (library / "llama-server").read_text()


def test_the_original_is_never_written_to(original, prefix):
    before = contents(original.parent.parent)
    tree.install(prefix, original)
    tree.install(prefix, original, python=Path("/elsewhere/python"))
    tree.remove(prefix)

    assert contents(original.parent.parent) == before


def test_a_copy_does_where_links_are_refused(original, prefix, monkeypatch):
    def refuse(*args, **kwargs):
        raise OSError("not permitted")

    monkeypatch.setattr(os, "link", refuse)
    tree.install(prefix, original)

    assert not (prefix / "bin" / "ollama").samefile(original)
    assert (prefix / "bin" / "ollama").read_bytes() == original.read_bytes()
    assert os.access(prefix / "bin" / "ollama", os.X_OK)


def test_a_second_install_changes_nothing(original, prefix):
    tree.install(prefix, original)
    before = contents(prefix), prefix.stat().st_ino
    _, changed = tree.install(prefix, original)

    assert not changed
    assert (contents(prefix), prefix.stat().st_ino) == before


def test_a_tree_that_fits_has_no_drift(original, prefix):
    tree.install(prefix, original)
    assert tree.status(prefix).drift == ()


def update(original):
    """As Ollama's installer does it: the library folder goes away, and a new binary takes the old one's name."""
    root = original.parent.parent
    shutil.rmtree(root / "lib" / "ollama")
    original.unlink()
    fake_ollama.install(root, fake_ollama.go_binary(version="v0.34.0"))
    (root / "lib" / "ollama" / "libllama.so.0.6").write_bytes(b"a newer llama")
    (root / "lib" / "ollama" / "libggml-vulkan.so").write_bytes(b"vulkan")
    (root / "lib" / "ollama" / "llama-quantize").unlink()


def test_status_notices_an_update_of_ollama_and_install_repairs_it(original, prefix):
    tree.install(prefix, original)
    update(original)
    drift = "\n".join(tree.status(prefix).drift)

    assert "from 0.33.2 (revision unknown) to 0.34.0 (revision unknown)" in drift
    assert "the libraries in" in drift
    assert "libggml-vulkan.so is not linked" in drift
    assert "llama-quantize leads nowhere" in drift

    record, changed = tree.install(prefix, original)
    assert changed
    assert record.build.version == "0.34.0"
    assert tree.status(prefix).drift == ()
    assert (prefix / "bin" / "ollama").read_bytes() == original.read_bytes()


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda p: (p / "lib/ollama/llama-server").write_text("#!/bin/sh\n"), "is not the shim"),
        (lambda p: (p / "lib/ollama/llama-server").unlink(), "is not the shim"),
        (lambda p: (p / "bin/ollama").unlink(), "is missing"),
        (lambda p: (p / "lib/ollama/libllama.so.0").unlink(), "is not linked"),
        (lambda p: (p / "lib/ollama/extra").symlink_to("/nowhere"), "leads nowhere"),
    ],
    ids=["edited shim", "no shim", "no binary", "missing link", "dangling link"],
)
def test_a_damaged_tree_is_noticed_and_repaired(original, prefix, damage, said):
    tree.install(prefix, original)
    damage(prefix)

    assert said in "\n".join(tree.status(prefix).drift)
    assert tree.install(prefix, original)[1]
    assert tree.status(prefix).drift == ()


def test_an_original_that_is_gone_is_said(original, prefix):
    tree.install(prefix, original)
    shutil.rmtree(original.parent.parent)
    assert f"{original} is gone" in tree.status(prefix).drift


@pytest.mark.parametrize("file", ["keep.txt", "pilotfish-overlay.json/keep.txt"])
def test_a_folder_with_other_files_is_not_replaced(original, prefix, file):
    (prefix / file).parent.mkdir(parents=True)
    (prefix / file).write_text("mine")
    with pytest.raises(UsageError, match="an empty or a new folder"):
        tree.install(prefix, original)
    with pytest.raises(UsageError, match="no overlay"):
        tree.remove(prefix)
    assert (prefix / file).read_text() == "mine"


def test_a_prefix_in_the_original_is_refused(original):
    root = original.parent.parent
    before = contents(root)
    for place in (root / "lib" / "ollama" / "pilotfish", root / "lib" / "ollama", root):
        with pytest.raises(UsageError):
            tree.install(place, original)
    assert contents(root) == before


def test_a_failed_install_leaves_the_old_tree(original, prefix, monkeypatch):
    tree.install(prefix, original)
    before = contents(prefix)
    update(original)
    monkeypatch.setattr(Path, "symlink_to", lambda *args: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        tree.install(prefix, original)

    assert contents(prefix) == before
    assert [path.name for path in prefix.parent.iterdir()] == [prefix.name]


# An installation that ends, as if killed, right before its n-th step of putting the tree in place.
KILLED = """
import os, sys
from pathlib import Path
from pilotfish.ollama_overlay import tree

exchanges, last, steps = sys.argv[3] == "exchanges", int(sys.argv[4]), []

def step(really):
    def counted(*given, **named):
        steps.append(really)
        if len(steps) == last:
            os._exit(9)
        return really(*given, **named)
    return counted

tree.exchange = step(tree.exchange) if exchanges else lambda *given: False
Path.rename = step(Path.rename)
tree.shutil.rmtree = step(tree.shutil.rmtree)
tree.install(Path(sys.argv[1]), Path(sys.argv[2]))
"""


@pytest.mark.parametrize(
    ("how", "last"), [("exchanges", 1), ("exchanges", 2), ("renames", 1), ("renames", 2), ("renames", 3)]
)
def test_an_install_that_is_killed_is_made_good_by_the_next(original, prefix, how, last):
    tree.install(prefix, original)
    update(original)
    done = subprocess.run([sys.executable, "-c", KILLED, prefix, original, how, str(last)], check=False)
    assert done.returncode == 9

    if how == "exchanges":
        assert os.access(prefix / "bin" / "ollama", os.X_OK), "there is always one"
    tree.install(prefix, original)
    assert tree.status(prefix).drift == ()
    assert [path.name for path in prefix.parent.iterdir()] == [prefix.name]


def test_what_was_killed_between_two_renames_can_be_removed(original, prefix):
    tree.install(prefix, original)
    update(original)
    subprocess.run([sys.executable, "-c", KILLED, prefix, original, "renames", "2"], check=False)
    assert not prefix.exists()
    tree.remove(prefix)
    assert list(prefix.parent.iterdir()) == []


def test_a_removal_that_is_killed_is_finished_by_the_next_command(original, prefix, monkeypatch):
    tree.install(prefix, original)
    with monkeypatch.context() as killed:
        killed.setattr(shutil, "rmtree", lambda *given, **named: None)
        tree.remove(prefix)
    assert not prefix.exists()
    assert tree.install(prefix, original)[1]
    assert [path.name for path in prefix.parent.iterdir()] == [prefix.name]


def test_folders_of_a_similar_name_are_left_alone(original, prefix):
    other = prefix.with_name(f".{prefix.name}.backup")
    other.mkdir(parents=True)
    tree.install(prefix, original)
    tree.remove(prefix)
    assert other.is_dir()


def test_installs_at_the_same_time_make_one_tree(original, prefix):
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda _: tree.install(prefix, original)[1], range(4)))
    assert sorted(made) == [False, False, False, True]
    assert tree.status(prefix).drift == ()


@pytest.mark.parametrize("text", ['{"format": 1', "[]", "[" * 50_000, '{"format": 1, "binary": [Infinity, 0]}'])
def test_a_damaged_record_is_an_error_for_status_and_a_reason_to_install(original, prefix, text):
    tree.install(prefix, original)
    (prefix / "pilotfish-overlay.json").write_text(text)
    with pytest.raises(UsageError, match="cannot be used"):
        tree.status(prefix)
    assert tree.install(prefix, original)[1]


class TestFinding:
    def test_the_first_on_path_that_is_no_overlay(self, original, prefix, monkeypatch):
        tree.install(prefix, original)
        monkeypatch.setenv("PATH", f"{prefix / 'bin'}:{original.parent}")
        assert installation.find(None, tree.is_overlay).binary == original.resolve()

    def test_links_are_followed(self, original, tmp_path):
        link = tmp_path / "bin" / "ollama"
        link.parent.mkdir()
        link.symlink_to(original)
        assert installation.find(link).library == original.parent.parent / "lib" / "ollama"

    def test_an_overlay_is_not_taken_for_the_original(self, original, prefix):
        tree.install(prefix, original)
        with pytest.raises(UsageError, match="belongs to an overlay"):
            tree.install(prefix.with_name("second"), prefix / "bin" / "ollama")

    def test_the_macos_app_keeps_everything_in_one_folder(self, tmp_path):
        folder = tmp_path / "Ollama.app" / "Contents" / "Resources"
        folder.mkdir(parents=True)
        for name in ("ollama", "llama-server", "libllama.dylib"):
            (folder / name).write_bytes(fake_ollama.go_binary())
        found = installation.at(folder / "ollama", platform="darwin")
        assert found.library == folder
        assert sorted(map(str, found.files())) == ["libllama.dylib", "llama-server"]

    def test_an_ollama_without_a_llama_server_is_too_old(self, original):
        (original.parent.parent / "lib" / "ollama" / "llama-server").unlink()
        with pytest.raises(UsageError, match="update Ollama"):
            installation.find(original)

    def test_none_at_all(self, tmp_path, monkeypatch):
        monkeypatch.setenv("PATH", str(tmp_path))
        monkeypatch.setattr(installation, "USUAL_PLACES", ())
        with pytest.raises(UsageError, match="no Ollama was found"):
            installation.find()


class TestService:
    def test_the_files_in_etc_are_what_is_made(self):
        ollama, python = Path("/opt/pilotfish/ollama/bin/ollama"), Path("/opt/pilotfish/venv/bin/python")
        assert (ETC / "systemd" / "ollama.service.d" / "pilotfish.conf").read_text() == systemd_drop_in(ollama)
        assert (ETC / "systemd" / "pilotfish.service").read_text() == systemd_unit(python)
        assert (ETC / "launchd" / "com.pilotfish.ollama.plist").read_text() == launchd_agent(ollama)
        assert (ETC / "launchd" / "com.pilotfish.daemon.plist").read_text() == launchd_daemon_agent(python)

    def test_paths_are_quoted(self):
        assert 'ExecStart="/a b/100%%/ollama" serve' in systemd_drop_in(Path("/a b/100%/ollama"))
        assert 'ExecStart="/a b/python" -P -m pilotfish.daemon.cli daemon' in systemd_unit(Path("/a b/python"))
        assert "<string>/a &amp; b/ollama</string>" in launchd_agent(Path("/a & b/ollama"))

    @pytest.mark.parametrize("make", [launchd_agent, launchd_daemon_agent])
    def test_an_agent_is_a_property_list(self, make):
        agent = plistlib.loads(make(Path("/a & b/program")).encode())
        assert agent["ProgramArguments"][0] == "/a & b/program"
        assert agent["KeepAlive"] is True
        assert agent["Label"].startswith("com.pilotfish.")

    def test_files_of_an_older_version_are_made_again(self, original, prefix):
        tree.install(prefix, original)
        (prefix / service.SYSTEMD / service.UNIT).unlink()
        assert any(str(service.UNIT) in line for line in tree.status(prefix).drift)
        assert tree.install(prefix, original)[1]
        assert tree.status(prefix).drift == ()

    @pytest.mark.parametrize("platform", ["linux", "darwin"])
    def test_two_lines_make_it_permanent(self, original, prefix, platform):
        tree.install(prefix, original)
        first, second = permanent_lines(prefix, platform)
        named = [Path(word) for word in first.split() if word.startswith(str(prefix))]
        files = [file for path in named for file in (path.rglob("*") if path.is_dir() else [path]) if file.is_file()]
        assert len(files) == 2
        assert "ollama" in second


class TestCommands:
    @pytest.fixture
    def invoke(self, prefix, tmp_path, monkeypatch):
        monkeypatch.setenv("PILOTFISH_STATE", str(tmp_path / "state"))
        monkeypatch.setenv("PILOTFISH_DATA", str(prefix.parent))
        return lambda *words: CliRunner().invoke(cli, ["overlay", *words])

    def test_install_status_remove(self, invoke, original, prefix):
        assert invoke("status").exit_code == 1
        made = invoke("install", "--ollama", str(original))
        assert made.exit_code == 0
        assert "systemctl" in made.output or "launchctl" in made.output
        assert "it fits" in invoke("status").output
        assert '"version": "0.33.2"' in invoke("status", "--json").output
        update(original)
        assert invoke("status").exit_code == 1
        assert invoke("remove").exit_code == 0
        assert not prefix.exists()

    def test_run_becomes_ollama(self, invoke, original, prefix, monkeypatch):
        ran = []
        monkeypatch.setattr(os, "execv", lambda path, words: ran.append((Path(path), words)))
        monkeypatch.setattr(commands, "start_daemon", lambda: ran.append("a daemon") or "")
        invoke("install", "--ollama", str(original))
        invoke("run")
        invoke("run", "--", "ps", "--help")

        binary = prefix / "bin" / "ollama"
        assert ran == ["a daemon", (binary, [str(binary), "serve"]), (binary, [str(binary), "ps", "--help"])]

    def test_run_becomes_ollama_whatever_becomes_of_the_daemon(self, invoke, original, monkeypatch):
        ran = []
        monkeypatch.setattr(os, "execv", lambda path, words: ran.append(words[1]))
        monkeypatch.setattr(commands, "start_daemon", lambda: "no usable socket path")
        invoke("install", "--ollama", str(original))
        said = invoke("run")
        assert ran == ["serve"]
        assert "no daemon: no usable socket path" in said.output

    def test_run_needs_an_overlay(self, invoke):
        assert "pilotfish overlay install" in str(invoke("run").exception)
