"""`pilotfish parity --ollama` in its short form, on a model with sliding windows: Gemma 3 270M under a real Ollama."""

from __future__ import annotations

import asyncio
import shutil

import pytest

from pilotfish.daemon.lab.floor_servers import Ollamas
from pilotfish.daemon.lab.parity_ollama import NOW_AND_THEN, PLAIN, OllamaParity
from pilotfish.daemon.lab.workloads import MODES, load_workloads
from tests.e2e.ollama_server import SAME_KERNELS
from tests.engines import GEMMA

pytestmark = [pytest.mark.ollama, pytest.mark.model, pytest.mark.timeout(600)]

BEYOND = 600  # tokens: the windows are 512 long


def test_drafts_change_no_row_of_gemma_beyond_its_windows_and_brought_back(ollama_binary, overlay, folder, quantized):
    place = folder / "gemma"
    place.mkdir()
    # A store links to what it is given, and of a file with another link everything known is forgotten.
    weights = shutil.copyfile(quantized(GEMMA), place / "gemma.gguf")
    parity = OllamaParity(
        Ollamas(ollama_binary, overlay, "under test"),
        weights,
        load_workloads()[:2],
        MODES,
        (BEYOND, 0),
        12,
        place,
        engine="llama",
        drafting=(NOW_AND_THEN,),
        environment=SAME_KERNELS,
    )
    plain, stock, drafted = asyncio.run(parity.run())

    assert (plain.title, plain.drafted, plain.unequal) == (PLAIN, 0, [])
    assert max(trial.prompt for trial in plain.trials) > BEYOND
    assert 0 < drafted.accepted < drafted.drafted
    assert min(plain.restored, drafted.restored) > 0
    assert (drafted.unequal, drafted.other_rows) == ([], 0)
    assert [trial.prompt for trial in stock.trials] == [trial.prompt for trial in plain.trials]
    greedy = [trial for trial in stock.trials if trial.mode == "greedy"]
    assert all(trial.equal for trial in greedy), "its kernels differ in last bits, which seldom show in greedy answers"
