"""`pilotfish kernels-build` says where the library is and what it computes."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from pilotfish.daemon.cli import cli
from pilotfish.daemon.kernels.kernels_here import obstacle


@pytest.mark.skipif(bool(obstacle()), reason=obstacle())
def test_it_names_the_library_and_its_types(tmp_path, monkeypatch):
    monkeypatch.setenv("PILOTFISH_CACHE", str(tmp_path))
    said = CliRunner().invoke(cli, ["kernels-build"]).output
    (library,) = (tmp_path / "kernels").iterdir()
    assert f"kernels for F32, F16, BF16 are in {library}" in said
