"""What a load has to import to find its lane: certificates, and nothing that measures."""

from __future__ import annotations

import json
import subprocess
import sys

IMPORTED = """
import json, sys
import pilotfish.daemon.certify.lookup
print(json.dumps(sorted(sys.modules)))
"""


def test_a_load_imports_neither_the_certifier_nor_the_lab() -> None:
    modules = json.loads(subprocess.run([sys.executable, "-c", IMPORTED], capture_output=True, check=True).stdout)
    assert "pilotfish.daemon.certify.certificate" in modules
    measuring = ("pilotfish.daemon.certify.certif", "pilotfish.daemon.lab", "numpy")
    assert [name for name in modules if name.startswith(measuring)] == ["pilotfish.daemon.certify.certificate"]
