"""How an overlay becomes permanent: the files for systemd and launchd, and the two lines to type.

`etc/ollama.service.d/pilotfish.conf` and `etc/com.pilotfish.ollama.plist` are what this makes for a tree in
`/opt/pilotfish/ollama`.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from xml.sax.saxutils import escape

SYSTEMD_FILE = Path("share", "pilotfish.conf")
LAUNCHD_FILE = Path("share", "com.pilotfish.ollama.plist")
_UNIT_PLACE = "/etc/systemd/system/ollama.service.d/pilotfish.conf"
_AGENT_PLACE = "~/Library/LaunchAgents/com.pilotfish.ollama.plist"

_SYSTEMD = """\
# A drop-in for the service that Ollama's installer makes: the same server, started from the overlaid tree.
# To undo it, delete this file and run: systemctl daemon-reload && systemctl restart ollama
#
# The service runs as the user `ollama`. That user needs to be able to read the tree and the Python environment that
# pilotfish is installed in; where it cannot, every model runs on the stock llama-server.
[Service]
ExecStart=
ExecStart=@OLLAMA@ serve
"""

_LAUNCHD = """\
<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
<!-- A login agent that serves Ollama from the overlaid tree. Quit the Ollama app first: both want port 11434.
     To undo it: launchctl bootout gui/$(id -u)/com.pilotfish.ollama, and delete this file. -->
<plist version="1.0">
<dict>
  <key>Label</key>
  <string>com.pilotfish.ollama</string>
  <key>ProgramArguments</key>
  <array>
    <string>@OLLAMA@</string>
    <string>serve</string>
  </array>
  <key>RunAtLoad</key>
  <true/>
  <key>KeepAlive</key>
  <true/>
</dict>
</plist>
"""


def systemd_drop_in(ollama: Path) -> str:
    """A drop-in that starts `ollama`, the overlay's binary."""
    quoted = str(ollama).replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return _SYSTEMD.replace("@OLLAMA@", f'"{quoted}"' if any(c.isspace() or c == '"' for c in quoted) else quoted)


def launchd_agent(ollama: Path) -> str:
    """A login agent that starts `ollama`, the overlay's binary."""
    return _LAUNCHD.replace("@OLLAMA@", escape(str(ollama)))


def permanent_lines(prefix: Path, platform: str) -> tuple[str, str]:
    """The two lines a person types to have the overlay started from now on."""
    if platform == "darwin":
        return (
            f"cp {shlex.quote(str(prefix / LAUNCHD_FILE))} {_AGENT_PLACE}",
            f"launchctl bootstrap gui/$(id -u) {_AGENT_PLACE}",
        )
    return (
        f"sudo install -Dm644 {shlex.quote(str(prefix / SYSTEMD_FILE))} {_UNIT_PLACE}",
        "sudo systemctl daemon-reload && sudo systemctl restart ollama",
    )


def write_files(tree: Path, ollama: Path) -> None:
    """Put both files into a tree that is being made, for the binary's final place."""
    for name, text in ((SYSTEMD_FILE, systemd_drop_in(ollama)), (LAUNCHD_FILE, launchd_agent(ollama))):
        path = tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", errors="surrogateescape")
