"""What the README shows works as it stands."""

from __future__ import annotations

import re
from pathlib import Path

from click import Context

from pilotfish.daemon.cli import cli
from pilotfish.daemon.config.files import load
from pilotfish.daemon.lab.fakes.fake_engine import fake_pin
from pilotfish.daemon.registry.registry import Registry

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", README, re.DOTALL)
    assert found
    return found.group(1)


def test_the_drafter_is_loaded_by_the_config_beside_it_and_proposes(tmp_path):
    (tmp_path / "drafters").mkdir(mode=0o755)
    (tmp_path / "drafters" / "echo.py").write_text(block("python"))
    (tmp_path / "pilotfish.toml").write_text(block("toml"))
    config = load(tmp_path / "pilotfish.toml")
    registry = Registry.load(config)
    assert registry.problems == []
    assert config.drafters.order == ("echo", "suffix")
    drafter = registry.drafter("echo")
    assert drafter is not None
    assert drafter.open(fake_pin(), [3, 4, 5]).propose(3).tokens == (5, 5, 5)


def test_every_linked_file_exists():
    linked = re.findall(r"\]\((?!https?://)([^)#]+)\)", README)
    assert linked
    assert [path for path in linked if not (ROOT / path).exists()] == []


def test_every_linked_heading_exists():
    linked = re.findall(r"\]\((?!https?://)([^)#]*)#([^)]+)\)", README)
    assert linked
    assert [(path, heading) for path, heading in linked if heading not in headings(ROOT / (path or "README.md"))] == []


def headings(path: Path) -> set[str]:
    """Those of a page, as its links name them."""
    found = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-") for title in found}


def test_every_test_it_names_exists():
    named = re.findall(r"`(tests/[^`]+)`", README)
    assert named
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_every_command_it_shows_exists():
    blocks = re.findall(r"^```sh$(.*?)^```$", README, re.DOTALL | re.MULTILINE)
    inline = re.findall(r"`([^`]+)`", re.sub(r"^```.*?^```$", "", README, flags=re.DOTALL | re.MULTILINE))
    named = set(re.findall(r"(?:^|/|\| )pilotfish ([a-z][a-z-]*)", "\n".join([*blocks, *inline]), re.MULTILINE))
    assert {"serve", "run", "overlay", "off"} <= named
    assert named <= set(cli.list_commands(Context(cli)))


def test_every_make_target_it_names_exists():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"^make ([a-z-]+)|`make ([a-z-]+)", README, re.MULTILINE))
    assert {"demo", "test"} <= {name for pair in named for name in pair if name} <= targets
