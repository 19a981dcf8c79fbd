"""How an overlay becomes permanent: the files for systemd and launchd, and the two lines to type.

Ollama and pilotfish's daemon are two services: Ollama is started from the overlaid tree whether or not the daemon can
be. What lies in `etc/systemd` and `etc/launchd` is what this makes for a tree in `/opt/pilotfish/ollama` and a Python
in `/opt/pilotfish/venv`.
"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator
from pathlib import Path
from xml.sax.saxutils import escape

SYSTEMD = Path("share", "systemd")
LAUNCHD = Path("share", "launchd")
DROP_IN = Path("ollama.service.d", "pilotfish.conf")
UNIT = Path("pilotfish.service")
OLLAMA_AGENT = Path("com.pilotfish.ollama.plist")
DAEMON_AGENT = Path("com.pilotfish.daemon.plist")
_UNITS = "/etc/systemd/system"
_AGENTS = "~/Library/LaunchAgents"

_DROP_IN = """\
# A drop-in for the service that Ollama's installer makes: the same server, started from the overlaid tree, and
# pilotfish's daemon beside it. To undo it, delete this file and pilotfish.service, and run:
# systemctl daemon-reload && systemctl restart ollama
#
# The service runs as the user `ollama`. That user needs to be able to read the tree and the Python environment that
# pilotfish is installed in; where it cannot, every model runs on the stock llama-server.
[Unit]
Wants=pilotfish.service

[Service]
ExecStart=
ExecStart=@OLLAMA@ serve
"""

_UNIT = """\
# pilotfish's daemon beside an overlaid Ollama, as the same user: it starts and ends with ollama.service.
# What it knows: sudo -u ollama -H @PYTHON_HERE@ -m pilotfish.daemon.cli status
[Unit]
Description=pilotfish, speculative decoding for Ollama
PartOf=ollama.service
Before=ollama.service

[Service]
ExecStart=@PYTHON@ -P -m pilotfish.daemon.cli daemon
User=ollama
Group=ollama
Restart=on-failure
RestartSec=5
"""

_AGENT = """\
<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
<!-- @ABOUT@
     To undo it: launchctl bootout gui/$(id -u)/@LABEL@, and delete this file. -->
<plist version="1.0">
<dict>
  <key>Label</key>
  <string>@LABEL@</string>
  <key>ProgramArguments</key>
  <array>
@WORDS@
  </array>
  <key>RunAtLoad</key>
  <true/>
  <key>KeepAlive</key>
  <true/>
</dict>
</plist>
"""


def systemd_drop_in(ollama: Path) -> str:
    """A drop-in that starts `ollama`, the overlay's binary, and wants the daemon's unit."""
    return _DROP_IN.replace("@OLLAMA@", _unit_word(ollama))


def systemd_unit(python: Path) -> str:
    """The unit of the daemon, which `python` runs."""
    return _UNIT.replace("@PYTHON_HERE@", shlex.quote(str(python))).replace("@PYTHON@", _unit_word(python))


def launchd_agent(ollama: Path) -> str:
    """A login agent that starts `ollama`, the overlay's binary."""
    about = "A login agent that serves Ollama from the overlaid tree. Quit the Ollama app first: both want port 11434."
    return _agent(OLLAMA_AGENT.stem, about, str(ollama), "serve")


def launchd_daemon_agent(python: Path) -> str:
    """A login agent for the daemon, which `python` runs."""
    about = "A login agent: pilotfish's daemon beside the Ollama that com.pilotfish.ollama serves."
    return _agent(DAEMON_AGENT.stem, about, str(python), "-P", "-m", "pilotfish.daemon.cli", "daemon")


def permanent_lines(prefix: Path, platform: str) -> tuple[str, str]:
    """The two lines a person types to have the overlay and the daemon started from now on."""
    if platform == "darwin":
        agents = f"{_AGENTS}/{OLLAMA_AGENT} {_AGENTS}/{DAEMON_AGENT}"
        made = " ".join(shlex.quote(str(prefix / LAUNCHD / agent)) for agent in (OLLAMA_AGENT, DAEMON_AGENT))
        return f"cp {made} {_AGENTS}/", f"launchctl bootstrap gui/$(id -u) {agents}"
    return (
        f"sudo cp -r {shlex.quote(str(prefix / SYSTEMD))}/. {_UNITS}/",
        "sudo systemctl daemon-reload && sudo systemctl restart ollama",
    )


def write_files(tree: Path, ollama: Path, python: Path) -> None:
    """Put all files into a tree that is being made, for the binary's final place; `python` runs pilotfish."""
    for name, text in _files(ollama, python).items():
        path = tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", errors="surrogateescape")


def damaged_files(tree: Path, ollama: Path, python: Path) -> Iterator[str]:
    """A sentence for every file that is not what this version makes."""
    for name, text in _files(ollama, python).items():
        with contextlib.suppress(OSError):
            if (tree / name).read_text(encoding="utf-8", errors="surrogateescape") == text:
                continue
        yield f"{tree / name} is not what this version of pilotfish makes"


def _files(ollama: Path, python: Path) -> dict[Path, str]:
    return {
        SYSTEMD / DROP_IN: systemd_drop_in(ollama),
        SYSTEMD / UNIT: systemd_unit(python),
        LAUNCHD / OLLAMA_AGENT: launchd_agent(ollama),
        LAUNCHD / DAEMON_AGENT: launchd_daemon_agent(python),
    }


def _unit_word(path: Path) -> str:
    """A path as systemd reads it."""
    quoted = str(path).replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{quoted}"' if any(c.isspace() or c == '"' for c in quoted) else quoted


def _agent(label: str, about: str, *words: str) -> str:
    lines = "\n".join(f"    <string>{escape(word)}</string>" for word in words)
    return _AGENT.replace("@ABOUT@", about).replace("@LABEL@", label).replace("@WORDS@", lines)
