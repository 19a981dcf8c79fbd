"""The verdict on a pair, from figures."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pilotfish.daemon.drafters.pairing import Memory, Pairing
from pilotfish.hooks.types import Footprint

HEAVY = Footprint(4_000, 0)
MEMORY = Memory(Footprint(8_000, 1_000), Footprint(500, 100))
PAIR = Pairing("big", "small", "vocab_map", 0.97, 95, 100, 90, ("a",), 1.0, MEMORY)


def test_a_small_drafter_that_fits_is_worth_trying() -> None:
    assert PAIR.verdict == (
        True,
        "ids are mapped one by one, by their bytes; a drafted token reads 6% of what a plain step reads",
    )


@pytest.mark.parametrize(
    ("pair", "reason"),
    [
        (replace(PAIR, bridge=None), "no bridge joins them"),
        (replace(PAIR, memory=replace(MEMORY, refusal="small does not fit: 1 is missing")), "small does not fit: 1"),
        (
            replace(PAIR, memory=replace(MEMORY, drafter=HEAVY)),
            "would cost 50% of a plain step",
        ),
    ],
)
def test_what_speaks_against_a_pair_is_said(pair: Pairing, reason: str) -> None:
    usable, why = pair.verdict
    assert not usable
    assert reason in why


def test_memory_of_another_device_is_not_added_up() -> None:
    elsewhere = replace(MEMORY, drafter=Footprint(500, 100_000, "CUDA0"))
    assert elsewhere.needed == 9_000


def test_a_heavy_drafter_on_another_device_is_no_burden_here() -> None:
    assert replace(PAIR, memory=replace(MEMORY, drafter=replace(HEAVY, device="CUDA0"))).verdict[0]


def test_without_weights_the_tokenizers_decide() -> None:
    usable, why = replace(PAIR, memory=replace(MEMORY, drafter=None)).verdict
    assert usable
    assert "the drafter's weights are not known here" in why


def test_a_plugins_bridge_counts_like_any() -> None:
    assert replace(PAIR, bridge="mine").verdict[0]


def test_json_holds_figures_and_verdict() -> None:
    document = PAIR.to_json()
    assert document["memory"]["needed"] == 9_600
    assert document["memory"]["fits"] is True
    assert document["usable"] is True
    assert document["unmapped"] == ("a",)
