"""The limit of open files before and after mlx-lm is imported."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest

from pilotfish.plugins._open_files import open_files_kept

FILES = resource.RLIMIT_NOFILE
IMPORTING = """
import resource
from pathlib import Path
from pilotfish.hooks.types import EngineOptions
{importing}
resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, 3000))
load()
import sys
assert "mlx_lm" in sys.modules
print(*resource.getrlimit(resource.RLIMIT_NOFILE))
"""
VERIFIER = "from pilotfish.plugins.verifiers.mlx import MLXVerifier\nload = lambda: MLXVerifier()._dialect(None)"
DRAFTER = "from pilotfish.plugins.drafters.mlx import _module\nload = lambda: _module('_mlx_model')"


def test_inside_it_grows_and_never_shrinks() -> None:
    before = soft, hard = resource.getrlimit(FILES)
    with open_files_kept():
        resource.setrlimit(FILES, (1, 1))
        assert resource.getrlimit(FILES) == before
        resource.setrlimit(FILES, (soft + 1, hard))
        grown = soft if soft == resource.RLIM_INFINITY else soft + 1 if hard == resource.RLIM_INFINITY else None
        assert resource.getrlimit(FILES) == (grown or min(soft + 1, hard), hard)
    resource.setrlimit(FILES, before)


@pytest.mark.drafters
@pytest.mark.parametrize("importing", [VERIFIER, DRAFTER], ids=["verifier", "drafter"])
@pytest.mark.parametrize(("soft", "after"), [(256, "2048 3000"), (2900, "2900 3000")])
def test_mlx_lm_lowers_nothing(importing: str, soft: int, after: str) -> None:
    code = IMPORTING.format(importing=importing, soft=soft)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert (done.stdout.strip(), done.returncode) == (after, 0), done.stderr
