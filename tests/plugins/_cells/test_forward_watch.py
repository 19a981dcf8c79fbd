"""What a library cannot show is refused with a reason, and nothing is raised through it."""

from __future__ import annotations

import ctypes

import pytest

from pilotfish.hooks.errors import EngineError
from pilotfish.plugins._cells.forward_watch import ForwardWatch
from pilotfish.plugins._cells.ggml_tensors import TensorReader

pytestmark = pytest.mark.model

TENSOR = 1 << 12


@pytest.fixture
def library() -> ctypes.CDLL:
    from pilotfish.plugins._llama.library import lib

    found: ctypes.CDLL = lib._lib
    return found


def test_a_library_without_ggmls_functions_is_refused() -> None:
    with pytest.raises(EngineError, match="it has no ggml_get_name"):
        TensorReader(ctypes.CDLL(None))


def test_what_goes_wrong_in_the_callback_ends_the_looking_and_not_the_forward(
    library: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable(reader: TensorReader, tensor: int) -> None:
        raise ValueError("of another world")

    monkeypatch.setattr(TensorReader, "facts", unreadable)
    watch = ForwardWatch(library)
    assert not watch.callback(TENSOR, True, None)  # nobody looks
    watch.begin(1)
    assert watch.callback(TENSOR, False, None)  # the forward goes on
    with pytest.raises(EngineError, match=r"could not be looked into.*of another world"):
        watch.end()
    watch.begin(1)
    assert watch.end() == ()
