"""What is turned in another context, and what is not."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("llama_cpp")

from pilotfish.plugins._llama.half_floats import BF16, F16
from pilotfish.plugins._llama.sequence_state import LayerRows, SequenceState
from pilotfish.plugins._llama.shifting import turnable

ONE, INFINITE, NO_NUMBER, TOO_LARGE = 0x3F80, 0x7F80, 0x7FC0, 0x4780  # bf16


def with_key(bits: int) -> SequenceState:
    keys, values = (
        tuple(LayerRows(kind, np.array([[ONE, last]], np.uint16).view(np.uint8)) for last in (ONE, bits))
        for kind in (BF16, F16)
    )
    return SequenceState(0, 1, np.array([3], np.int32), (keys, values))


def test_keys_become_f16_and_values_stay() -> None:
    found, before = turnable(with_key(ONE)), with_key(ONE)
    assert [layer.rows.view(np.float16).tolist() for layer in found.sides[0]] == [[[1.0, 1.0]]] * 2
    assert [layer.kind for layer in found.sides[0]] == [F16, F16]
    assert [layer.rows.tobytes() for layer in found.sides[1]] == [layer.rows.tobytes() for layer in before.sides[1]]


@pytest.mark.parametrize("bits", [INFINITE, INFINITE | 0x8000, TOO_LARGE, NO_NUMBER, NO_NUMBER | 0x8000])
def test_what_f16_cannot_hold_and_what_is_no_number_is_not_turned(bits: int) -> None:
    with pytest.raises(OverflowError, match=r"larger than f16|no number"):
        turnable(with_key(bits))
