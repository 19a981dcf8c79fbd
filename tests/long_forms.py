"""Tests of many cases: a short form in which every kind comes once, and the rest, which `make test-long` runs."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any

import pytest


def every_kind_once(*axes: Mapping[str, object], others: pytest.MarkDecorator) -> list[Any]:
    """Parameters for every combination of the axes' values, which are given by their titles.

    Short are as many as the longest axis has values: of each axis every value comes in one of them, those of a shorter
    axis by turns. `others` marks the rest: `pytest.mark.long`, in the test's own file.
    """
    titles = [list(axis) for axis in axes]
    short = {tuple(names[i % len(names)] for names in titles) for i in range(max(map(len, titles)))}
    return [
        pytest.param(
            *(axis[name] for axis, name in zip(axes, names, strict=True)),
            id="-".join(names),
            marks=() if names in short else others,
        )
        for names in product(*titles)
    ]
