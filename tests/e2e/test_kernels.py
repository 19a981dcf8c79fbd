"""A model of half floats under a real Ollama: with kernels it is drafted for on libllama, and no id is another one."""

from __future__ import annotations

import asyncio
import shutil

import pytest

from pilotfish.daemon.kernels.kernel_building import build_kernels
from pilotfish.daemon.kernels.kernels_here import FOLDER, obstacle
from pilotfish.daemon.lab.floor_servers import Ollamas
from pilotfish.daemon.lab.parity_ollama import NOW_AND_THEN, PLAIN, OllamaParity
from pilotfish.daemon.lab.workloads import MODES, load_workloads
from pilotfish.hooks.kernels import KERNELS
from tests.e2e.ollama_server import SAME_KERNELS

pytestmark = [
    pytest.mark.ollama,
    pytest.mark.model,
    pytest.mark.timeout(600),
    pytest.mark.skipif(bool(obstacle()), reason=obstacle()),
]


def test_drafts_change_no_row_of_a_model_of_half_floats(ollama_binary, overlay, folder, quantized, tmp_path):
    build_kernels(tmp_path / FOLDER)
    place = folder / "half-floats"
    place.mkdir()
    weights = shutil.copyfile(quantized("F16"), place / "f16.gguf")  # a store links to what it is given
    parity = OllamaParity(
        Ollamas(ollama_binary, overlay, "under test"),
        weights,
        load_workloads()[:2],
        MODES,
        (0,),
        12,
        place,
        engine="llama",
        drafting=(NOW_AND_THEN,),
        environment={**SAME_KERNELS, KERNELS: "", "PILOTFISH_CACHE": str(tmp_path)},
    )
    plain, stock, drafted = asyncio.run(parity.run())

    assert (plain.title, plain.drafted, plain.unequal) == (PLAIN, 0, [])
    assert 0 < drafted.accepted < drafted.drafted
    assert (drafted.unequal, drafted.other_rows) == ([], 0)
    assert all(trial.equal for trial in stock.trials if trial.mode == "greedy")
