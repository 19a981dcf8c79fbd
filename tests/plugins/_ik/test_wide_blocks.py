"""A prompt of any length is read rightly: the rows after it are llama.cpp's, but for the rounding of other kernels."""

from __future__ import annotations

import numpy as np
import pytest

from pilotfish.hooks.sample_text import SAMPLE
from pilotfish.hooks.types import EngineOptions, EngineSetting
from pilotfish.plugins._ik.wide_blocks import WRONG_WHEN_WIDE, at_once
from tests.engines import VERIFIERS
from tests.fakes.state import SHARED

pytestmark = pytest.mark.model

FORMATS = ("Q4_0", "Q4_1", "Q5_1", "Q8_0", "Q4_K_M", "Q6_K")
PROMPT, ROWS = 96, 8
ROUNDING = 0.05  # mean KL divergence; other kernels give 0.002 to 0.01, wrong ones 0.2 and more


def log_probabilities(verifier, pin) -> np.ndarray:
    """Of the ROWS tokens after a prompt: (ROWS, n_vocab) float64."""
    options = EngineOptions(n_ctx=256, threads=1, state_dir=SHARED)
    probe = VERIFIERS[verifier]().probe(pin, EngineSetting("f16", "f16", False, engine=verifier), 1, options)
    try:
        ids = probe.encode(SAMPLE)
        probe.feed(ids[:PROMPT])
        rows = []
        for token in ids[PROMPT : PROMPT + ROWS]:
            probe.rows([token], 1)
            rows.append(probe._context.row(0).astype(np.float64))
        found = np.array(rows)
    finally:
        probe.close()
    found -= found.max(axis=1, keepdims=True)
    return found - np.log(np.exp(found).sum(axis=1, keepdims=True))


@pytest.mark.parametrize("name", FORMATS)
def test_rows_after_a_long_prompt_are_those_of_llama_cpp(quantized, pin_of, name):
    pin = pin_of(quantized(name))
    theirs, ours = (log_probabilities(verifier, pin) for verifier in ("llama", "ik"))
    assert (np.exp(theirs) * (theirs - ours)).sum(axis=1).mean() < ROUNDING


def test_only_formats_that_are_wrong_are_held_back(quantized, pin_of):
    assert at_once(pin_of(quantized("Q4_1")), 512) == 31
    assert at_once(pin_of(quantized("Q4_1")), 16) == 16
    assert at_once(pin_of(quantized("Q8_0")), 512) == 512
    assert {"Q4_1", "Q5_1"} == WRONG_WHEN_WIDE
