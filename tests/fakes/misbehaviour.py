"""What plugins have raised and returned instead of what they should."""

from __future__ import annotations

import asyncio
from concurrent import futures
from typing import Any

import numpy as np
import pytest

from pilotfish.hooks.types import Proposal


class Panic(BaseException):
    """As native extensions raise: none of Exception."""


class Unspeakable(Exception):
    """Cannot even be shown."""

    def __str__(self) -> str:
        raise Panic("in __str__")


RAISED = [
    pytest.param(error, id=type(error).__name__)
    for error in (
        RuntimeError("the plugin broke"),
        SystemExit(3),
        KeyboardInterrupt(),
        asyncio.CancelledError(),
        futures.CancelledError(),
        StopIteration(),
        GeneratorExit(),
        Panic("called unwrap on a None value"),
        Unspeakable(),
    )
]


class Evil:
    """Raises whatever it is asked."""

    def __eq__(self, other: object) -> bool:
        raise Panic("in __eq__")

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        raise RuntimeError("in __repr__")  # what pytest can live with

    def __getattr__(self, name: str) -> Any:
        raise Panic(f"in {name}")


class Odd(Proposal):
    """A proposal that reads as another one every time."""

    @property
    def tokens(self) -> Any:
        raise SystemExit("in tokens")

    def __repr__(self) -> str:
        return "Odd()"


def _odd() -> Odd:
    return object.__new__(Odd)


JUNK = [
    pytest.param(answer, id=name)
    for name, answer in {
        "nothing": None,
        "a list": [5],
        "a text": "five",
        "an object that raises": Evil(),
        "a proposal that raises": _odd(),
        "no tokens": Proposal(None),  # type: ignore[arg-type]
        "a text of tokens": Proposal("56"),  # type: ignore[arg-type]
        "a generator": Proposal(i for i in (5, 6)),  # type: ignore[arg-type]
        "an array": Proposal(np.array([5, 6])),  # type: ignore[arg-type]
        "numpy ids": Proposal((np.int64(5), np.int32(6))),  # type: ignore[arg-type]
        "bools": Proposal((True, False)),
        "floats": Proposal((5.0,)),  # type: ignore[arg-type]
        "objects": Proposal((Evil(),)),  # type: ignore[arg-type]
        "an id of 70 bits": Proposal((2**70,)),
        "an id of 5000 digits": Proposal((10**5000,)),
        "a negative id": Proposal((-1,)),
        "an id beyond the vocabulary": Proposal((40_000,)),
        "an int behind a float": Proposal((5, 6.0)),  # type: ignore[arg-type]
        "more than was asked for": Proposal((5,) * 1000),
        "a nan": Proposal((5, 6), (float("nan"),)),
        "an infinity": Proposal((5,), (float("inf"),)),
        "a negative confidence": Proposal((5,), (-0.1,)),
        "a confidence above one": Proposal((5,), (1.5,)),
        "a confidence of 5000 digits": Proposal((5,), (10**5000,)),
        "a text as confidence": Proposal((5,), ("0.9",)),  # type: ignore[arg-type]
        "a complex confidence": Proposal((5,), (0.5 + 0j,)),  # type: ignore[arg-type]
        "a bool as confidence": Proposal((5,), (True,)),
        "an object as confidence": Proposal((5,), (Evil(),)),  # type: ignore[arg-type]
        "None for a confidence": Proposal((5,), (None,)),  # type: ignore[arg-type]
        "None for the confidences": Proposal((5,), None),  # type: ignore[arg-type]
        "an array of confidences": Proposal((5,), np.array([0.5])),  # type: ignore[arg-type]
        "too many confidences": Proposal((5,), (0.5, 0.5)),
    }.items()
]
