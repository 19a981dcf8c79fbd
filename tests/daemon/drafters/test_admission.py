"""A drafter that does not fit beside its target is refused with the sum, and goes when memory runs short."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

from pilotfish.daemon.drafters.admission import LEAST_MARGIN, MOST_MARGIN, TargetMemory, admit, margin, pressed
from pilotfish.daemon.drafters.memory_bounds import Bound
from pilotfish.hooks.errors import AdmissionRefused
from pilotfish.hooks.types import Footprint

MIB = 1 << 20
TARGET = TargetMemory("big:8b", weights=4000 * MIB, cache=1000 * MIB, taken=1000 * MIB)
DRAFTER = Footprint(weights=300 * MIB, cache=100 * MIB)


def bound(available: int, total: int = 16000, *, lends: bool = True, what: str = "the system's memory") -> Bound:
    return Bound(what, available * MIB, total * MIB, lends)


NEEDED = 300 + 100 + 800 + 4000  # the drafter, 5% of 16,000, and the target's mapped weights


def test_what_fits_to_the_byte_is_admitted() -> None:
    admit("llama", DRAFTER, TARGET, [bound(NEEDED)])


def test_one_byte_less_is_refused() -> None:
    short = Bound("the system's memory", NEEDED * MIB - 1, 16000 * MIB, lends=True)
    with pytest.raises(AdmissionRefused):
        admit("llama", DRAFTER, TARGET, [short])


def test_the_refusal_prints_the_whole_sum() -> None:
    with pytest.raises(AdmissionRefused) as refused:
        admit("llama", DRAFTER, TARGET, [bound(5000)])
    assert str(refused.value) == (
        "llama does not fit: weights 300 MiB + cache 100 MiB + margin 800 MiB = 1200 MiB, but of the system's memory "
        "(15.6 GiB) 5000 MiB are available, of which big:8b still may take 4000 MiB (weights 4000 MiB + full context "
        "1000 MiB - 1000 MiB taken), so that 1000 MiB are left: 200 MiB are missing. Choose a smaller drafter, give it "
        "or the target a shorter context, or free memory"
    )


def test_a_context_that_the_target_has_not_touched_yet_is_reserved() -> None:
    untouched = TargetMemory("big:8b", weights=4000 * MIB, cache=1000 * MIB)
    with pytest.raises(AdmissionRefused, match=r"may take 5000 MiB"):
        admit("llama", DRAFTER, untouched, [bound(NEEDED)])
    admit("llama", DRAFTER, untouched, [bound(NEEDED + 1000)])


def test_memory_measured_as_taken_never_adds_to_what_is_available() -> None:
    grown = TargetMemory("big:8b", weights=4000 * MIB, cache=1000 * MIB, taken=9000 * MIB)
    assert grown.pending == 0
    with pytest.raises(AdmissionRefused, match="1199 MiB are available: 1 MiB are missing"):
        admit("llama", DRAFTER, grown, [bound(1199)])


def test_the_tightest_of_several_bounds_decides_and_is_named() -> None:
    limit = bound(600, 1000, lends=False, what="the address space (ulimit -v)")
    with pytest.raises(AdmissionRefused, match=r"address space \(ulimit -v\) \(1000 MiB\) 600 MiB are available: 28"):
        admit("llama", Footprint(400 * MIB, 100 * MIB), TARGET, [bound(50_000), limit, bound(40_000)])
    admit("llama", Footprint(400 * MIB, 72 * MIB), TARGET, [bound(50_000), limit, bound(40_000)])


def test_mapped_weights_of_drafters_that_are_loaded_are_reserved_too() -> None:
    other = Footprint(weights=200 * MIB, cache=50 * MIB)
    admit("llama", DRAFTER, TARGET, [bound(NEEDED + 200)], others=[other])
    with pytest.raises(AdmissionRefused, match="other drafters map 200 MiB"):
        admit("llama", DRAFTER, TARGET, [bound(NEEDED + 199)], others=[other])


def test_where_nothing_is_known_nothing_is_refused() -> None:
    admit("tinygrad", DRAFTER, TARGET, [])
    assert pressed(TARGET, []) == ""


@pytest.mark.parametrize(
    ("total", "kept"), [(1 << 30, LEAST_MARGIN), (16 << 30, int(0.05 * (16 << 30))), (256 << 30, MOST_MARGIN)]
)
def test_the_margin_grows_with_the_memory_within_reason(total: int, kept: int) -> None:
    assert margin(total) == kept


def test_a_drafter_that_was_just_admitted_is_not_unloaded_again() -> None:
    left = bound(NEEDED - 100)  # its weights are mapped, its cache is taken
    assert pressed(TARGET, [left], others=[DRAFTER]) == ""


def test_drafters_go_when_half_of_the_margin_is_used_up() -> None:
    assert pressed(TARGET, [bound(4000 + 300 + 400)], others=[DRAFTER]) == ""
    reason = pressed(TARGET, [bound(4000 + 300 + 399)], others=[DRAFTER])
    assert "4699 MiB of the system's memory (15.6 GiB) are available" in reason
    assert "4300 MiB of that are spoken for" in reason


def test_the_target_is_the_only_claim_without_drafters() -> None:
    assert pressed(TARGET, [bound(4400)]) == ""
    assert "4000 MiB of that" in pressed(TARGET, [bound(4399)])


CONSTRAINED = """
    import resource
    import psutil
    from pilotfish.daemon.drafters.admission import TargetMemory, admit, pressed
    from pilotfish.daemon.drafters.memory_bounds import bounds_for
    from pilotfish.hooks.errors import AdmissionRefused
    from pilotfish.hooks.types import Footprint

    MIB = 1 << 20
    target = TargetMemory("big:8b", 0, 0)
    limit = psutil.Process().memory_info().vms + 1000 * MIB
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    admit("small", Footprint(100 * MIB, 100 * MIB), target, bounds_for("cpu"))
    try:
        admit("large", Footprint(900 * MIB, 100 * MIB), target, bounds_for("cpu"))
    except AdmissionRefused as refused:
        print(refused)
    held = bytearray(950 * MIB)
    print(pressed(target, bounds_for("cpu")))
"""


def test_in_a_process_with_a_limit_the_large_drafter_is_refused_and_the_small_one_is_not() -> None:
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(CONSTRAINED)], capture_output=True, text=True, check=False, timeout=60
    )
    assert run.returncode == 0, run.stderr
    refusal, reason = run.stdout.splitlines()
    assert refusal.startswith("large does not fit: weights 900 MiB + cache 100 MiB + margin")
    assert "of the address space (ulimit -v)" in refusal
    assert "memory runs short" in reason
