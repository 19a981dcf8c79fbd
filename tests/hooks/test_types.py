"""Engine settings and lanes are what their values are, whatever they are called."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pilotfish.hooks.types import EngineSetting, Lane, in_blocks

SETTING = EngineSetting("bf16", "f16", True, False, (("SWITCH", "0"),))
OTHERS = {
    "cache_type_k": "f16",
    "cache_type_v": "q8_0",
    "flash_attention": None,
    "repack": True,
    "environment": (),
    "engine": "another",
}


def test_a_setting_has_a_title_for_people() -> None:
    assert SETTING.title == "flash, K bf16, V f16, not repacked, SWITCH=0"
    assert EngineSetting("f16", "f16", None).title == "flash auto, K f16, V f16"
    assert EngineSetting("f16", "f16", False, engine="ik").title == "ik: no flash, K f16, V f16"


@pytest.mark.parametrize("part", OTHERS)
def test_a_setting_with_any_other_value_is_another_one(part: str) -> None:
    assert set(OTHERS) == set(EngineSetting.__slots__)
    assert replace(SETTING, **{part: OTHERS[part]}) != SETTING


def test_a_lanes_name_is_for_people_and_makes_no_difference() -> None:
    assert Lane("one name", (1, 2), SETTING) == Lane("another", (1, 2), SETTING)
    assert hash(Lane("one name", (1, 2), SETTING)) == hash(Lane("another", (1, 2), SETTING))
    assert Lane("a name", (1, 2), SETTING) != Lane("a name", (1, 2), replace(SETTING, engine="another"))


@pytest.mark.parametrize(
    ("tokens", "widths", "blocks"),
    [(1, (1,), [1]), (3, (1,), [1, 1, 1]), (7, (1, 2, 3, 4, 8), [4, 3]), (0, (1, 2), [])],
)
def test_tokens_are_made_up_of_a_lanes_widths_the_widest_first(
    tokens: int, widths: tuple[int, ...], blocks: list[int]
) -> None:
    assert in_blocks(tokens, widths) == blocks
