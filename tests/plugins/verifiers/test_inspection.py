"""Looking into forwards of the real engines: what was computed, where two forwards part, and that looking changes
nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pilotfish.daemon.certify.probe_driver import Deadline
from pilotfish.daemon.certify.reproductions import ForwardShape, Reproduction
from pilotfish.daemon.lab.diagnose.diagnosis import Parting, PastKind
from pilotfish.daemon.lab.diagnose.partings import Tracer
from pilotfish.daemon.lab.diagnose.replaying import HistoryReplay
from pilotfish.daemon.lab.diagnose.shrinking import part
from pilotfish.hooks.protocols import InspectsForwards, Probe
from pilotfish.hooks.types import EngineOptions, EngineSetting, TargetPin
from tests.engines import VERIFIERS

pytestmark = pytest.mark.model

OpenProbe = Callable[..., Probe]


@pytest.fixture
def probe_of(quantized: Callable[[str], Path], pin_of: Callable[[Path], TargetPin]) -> Iterator[OpenProbe]:
    opened: list[Probe] = []

    def open_probe(name: str, setting: EngineSetting) -> Probe:
        options = EngineOptions(n_ctx=512, threads=2)
        verifier = VERIFIERS[setting.engine]()
        opened.append(verifier.probe(pin_of(quantized(name)), setting, 8, options))
        return opened[-1]

    yield open_probe
    for probe in opened:
        probe.close()


def ids(count: int) -> list[int]:
    return [(7919 * i + 13) % 49_000 for i in range(count)]


def test_what_is_seen_leads_to_the_rows_of_a_forward_that_nobody_looked_into(
    probe_of: OpenProbe, verifier: str
) -> None:
    probe = probe_of("Q4_1", EngineSetting("f16", "f16", flash_attention=False, engine=verifier))
    assert isinstance(probe, InspectsForwards)
    probe.feed(ids(20))
    cells = probe.cells(18)
    traces = {width: probe.trace(ids(24)[20:][:width], width) for width in (1, 4)}
    assert probe.cells(18) == cells
    for width, trace in traces.items():
        assert list(trace.rows) == probe.rows(ids(24)[20:][:width], width)
        assert probe.cut(20)
        assert trace.operations[-1].slices[1] == trace.rows  # what is computed last is the rows
        weights = {one.weights: one.number_format for one in trace.operations}
        assert weights["blk.0.attn_output.weight"] == "q4_1"
        assert {"MUL_MAT", "SOFT_MAX"} <= {one.kind for one in trace.operations}
    assert probe.cells(18) == cells


def test_cells_are_told_one_by_one_where_their_form_is_known(probe_of: OpenProbe) -> None:
    probe = probe_of("Q4_1", EngineSetting())
    assert isinstance(probe, InspectsForwards)
    probe.feed(ids(12))
    before = {part.name: part for part in probe.cells(8)}
    assert {len(part.cells) for part in before.values()} == {4}
    assert {"layer 0 keys", "layer 29 values"} <= set(before)
    assert probe.cut(10)
    probe.feed([5, 6])
    for after in probe.cells(8):
        was = before[after.name]
        assert (after.before, after.cells[:2]) == (was.before, was.cells[:2])
        assert after.cells[2:] != was.cells[2:]


def where(probe: Probe, size: int, width: int) -> tuple[bool, tuple[Parting, ...]]:
    """Whether rows of widths 1 and `width` differ after `size` ids, and the operations that part first."""
    setting = EngineSetting()
    asked = Reproduction("smollm2", tuple(ids(size)), ForwardShape(setting, 1), ForwardShape(setting, width))
    replay = HistoryReplay(probe, asked, 512, Deadline(200))
    return part(replay, replay), Tracer(replay, replay).find()


def test_past_256_cells_stocks_attention_is_what_parts(probe_of: OpenProbe) -> None:
    """It splits the context among threads for one query alone, whatever the processor."""
    probe = probe_of("Q4_1", EngineSetting())
    differs, (found, *_) = where(probe, 264, 2)
    assert differs
    assert (found.layer, found.title, found.row) == (0, "attention (FLASH_ATTN_EXT)", 0)
    assert found.equal_before > 3
    assert found.digests[0] != found.digests[1]
    assert where(probe, 100, 2) == (False, ())


def test_of_k_quants_a_product_with_weights_parts_or_none_does(probe_of: OpenProbe) -> None:
    """Which widths have kernels of their own depends on the processor; what parts there never does."""
    differs, found = where(probe_of("Q4_K_M", EngineSetting()), 60, 5)
    assert differs is any(not one.heals for one in found)
    for one in found[:1]:
        assert one.title.startswith("the product with blk.")
        assert one.number_format in ("q4_K", "q6_K")


def test_a_history_in_blocks_of_a_class_writes_the_same_cells(probe_of: OpenProbe) -> None:
    probe = probe_of("Q4_1", EngineSetting("bf16", "f16"))
    setting = EngineSetting("bf16", "f16")
    asked = Reproduction("m", tuple(ids(40)), ForwardShape(setting, 1), ForwardShape(setting, 4), prompt=30)
    replay, cells = HistoryReplay(probe, asked, 512, Deadline(200)), []
    assert isinstance(probe, InspectsForwards)
    for kind in PastKind:
        replay.build(kind)
        cells.append(probe.cells(29))
    assert cells[1:] == cells[:-1]
