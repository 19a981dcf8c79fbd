"""What a stock server says of its devices, and that one which does not tell has none."""

from __future__ import annotations

from pathlib import Path

import pytest

from pilotfish.daemon.runner.floor import StockServer
from pilotfish.daemon.runner.stock_devices import stock_devices
from tests.server_processes import stock_server

TWO = """ggml_cuda_init: found 2 CUDA devices:
Available devices:
  CUDA0: NVIDIA L4 (22491 MiB, 22000 MiB free)
  CUDA1: NVIDIA L4 (22491 MiB, 22000 MiB free)
"""


@pytest.mark.parametrize(
    ("prints", "code", "found"),
    [
        (TWO, 0, ("CUDA0", "CUDA1")),
        ("Available devices:\n  (none)\n", 0, ()),
        ("unknown argument", 0, ()),
        (TWO, 1, ()),
    ],
)
def test_its_list_is_read(tmp_path: Path, prints: str, code: int, found: tuple[str, ...]) -> None:
    program = tmp_path / "llama-server"
    program.write_text(f"#!/bin/sh\n[ \"$1\" = --list-devices ] && cat <<'.'\n{prints}.\nexit {code}\n")
    program.chmod(0o755)
    assert stock_devices(StockServer(str(program), {"PATH": "/usr/bin:/bin"})) == found


def test_without_a_server_there_are_none(tmp_path: Path) -> None:
    assert stock_devices(None) == ()
    assert stock_devices(StockServer(str(tmp_path / "nothing"), {})) == ()


@pytest.mark.stock
def test_a_real_one_for_processors_has_none() -> None:
    (program,) = stock_server()
    assert stock_devices(StockServer(program, {})) == ()
