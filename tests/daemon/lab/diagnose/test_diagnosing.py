"""Diagnoses on a fake engine with one fault each."""

from __future__ import annotations

import json

import pytest

from pilotfish.daemon.certify.probe_driver import Deadline, OutOfTime
from pilotfish.daemon.certify.reproductions import PastRound
from pilotfish.daemon.lab.diagnose.diagnosing import Diagnosing
from pilotfish.daemon.lab.diagnose.diagnosis import FaultKind, PastKind
from pilotfish.daemon.lab.faults import CellKeepingProbe, PeekingProbe, WidthSensitiveProbe
from pilotfish.hooks.errors import EngineError, UsageError
from pilotfish.hooks.inspection import Trace
from tests.daemon.lab.diagnose.traced_probe import TracedProbe, diagnosed, reproduction
from tests.fakes.probe import FakeProbe


def split_attention(width: int, cells: int) -> object:
    """As ggml's: one query alone is computed in another way once there are more than 256 cells."""
    return int(width == 1 and cells > 256)


def test_where_every_width_computes_alike_nothing_differs():
    found = diagnosed(TracedProbe())
    assert not found.differs
    assert found.classes == (tuple(range(1, 18)),)
    assert [past.kind for past in found.pasts] == [PastKind.SINGLE, PastKind.BLOCKS, PastKind.FRESH]
    assert (found.parting, found.minimal, found.faults, found.notes) == (None, None, (), ())


def test_the_operation_that_parts_is_named_and_the_prefix_shortened_to_where_it_does():
    found = diagnosed(TracedProbe(split_attention))
    assert found.differs
    assert found.classes == ((1,), tuple(range(2, 18)))
    parting = found.parting
    assert (parting.name, parting.kind, parting.layer, parting.row) == ("node_2", "FLASH_ATTN_EXT", 0, 0)
    assert parting.equal_before == 2
    assert parting.digests[0] != parting.digests[1]
    assert parting.title == "attention (FLASH_ATTN_EXT)"
    least = found.minimal
    assert len(least.prefix) == 257 - 5 + 1  # the fifth token of the forward has 257 cells
    assert least.prefix == found.asked.prefix[:253]
    assert least.following == found.asked.prefix[253:257]
    assert diagnosed(TracedProbe(split_attention), least).differs
    json.dumps(found.to_json())


def test_a_shorter_prefix_does_not_differ():
    assert not diagnosed(TracedProbe(split_attention), reproduction(100)).differs


@pytest.mark.parametrize("width", [18, 33, 40])
def test_forwards_wider_than_those_that_are_always_tried_are_compared_to_their_last_token(width):
    def last_only(kernel_width, cells):
        return int(kernel_width == 1 and cells == 300 + width - 1)

    found = diagnosed(TracedProbe(last_only, n_ctx=400), reproduction(300, width=width))
    assert (found.parting.row, found.parting.kind) == (width - 1, "FLASH_ATTN_EXT")
    assert not diagnosed(TracedProbe(n_ctx=400), reproduction(300, width=width)).differs


def test_scores_say_how_far_off_a_width_is():
    found = diagnosed(WidthSensitiveProbe(TracedProbe(), {5}, at=3))
    scores = {scores.width: scores for scores in found.pasts[0].scores}
    assert (scores[1].equal, scores[1].off) == (True, 0)
    assert not scores[5].equal
    assert scores[5].off > 0
    assert scores[5].margin >= 0


def test_a_width_that_is_perturbed_from_some_operation_on_is_named():
    found = diagnosed(WidthSensitiveProbe(TracedProbe(), {5, 9}, at=3))
    assert found.classes == ((1, 2, 3, 4, 6, 7, 8, *range(10, 18)), (5, 9))
    assert found.parting.title == "the product with blk.0.ffn_down.weight (q4_0)"
    assert found.parting.equal_before == 3


def test_neighbouring_classes_are_told_apart_by_what_parts_them():
    """Attention parts width 1 from all others, a product with weights those from 8 on."""

    class Tiled(TracedProbe):
        def trace(self, tokens, width):
            found = super().trace(tokens, width)
            spoilt = [one.with_digests(lambda digest: digest[::-1]) for one in found.operations[3:]]
            return Trace((*found.operations[:3], *(spoilt if width > 7 else found.operations[3:])), found.rows)

    found = diagnosed(Tiled(lambda width, cells: (width == 1, width > 7), at=4), reproduction(40))
    assert found.classes == ((1,), tuple(range(2, 8)), tuple(range(8, 18)))
    assert found.parting.title == "the product with output.weight (q4_0)"
    assert [(one.widths, one.parting.name) for one in found.between] == [
        ((1, 2), "result_output"),
        ((2, 8), "ffn_out-0"),
    ]


def test_cells_that_stay_after_a_cut_are_named_and_nothing_is_compared():
    found = diagnosed(CellKeepingProbe(TracedProbe()))
    assert [fault.kind for fault in found.faults] == [FaultKind.UNCUT]
    assert (found.pasts, found.parting, found.differs) == ((), None, True)


def test_rows_that_see_what_follows_them_are_named():
    found = diagnosed(PeekingProbe(TracedProbe()))
    assert FaultKind.PEEKING in [fault.kind for fault in found.faults]


def test_a_probe_that_changes_when_it_is_looked_into_names_no_operation():
    found = diagnosed(TracedProbe(split_attention, shy=True))
    assert {fault.kind for fault in found.faults} == {FaultKind.INSPECTED}
    assert "rows of a forward of 5" in found.faults[0].what
    assert found.parting is None
    assert found.minimal is not None


def test_forwards_that_do_not_repeat_themselves_are_named():
    calls = iter(range(10_000))
    found = diagnosed(TracedProbe(lambda width, cells: next(calls)))
    assert [fault.kind for fault in found.faults] == [FaultKind.UNREPEATABLE]


def test_cells_that_depend_on_the_block_that_wrote_them_are_told_with_the_first_one():
    def kernel(width: int, cells: int) -> object:
        return min(width, 6)

    found = diagnosed(TracedProbe(kernel, sticky=True), reproduction(40, rounds=(PastRound(8, tuple(range(7)), 8),)))
    cells = {past.kind: past.cells for past in found.pasts}
    assert cells[PastKind.SINGLE] == ""
    assert cells[PastKind.BLOCKS] == "layer 0 keys, cell 31"  # the first that a round wrote


def test_a_probe_that_cannot_be_looked_into_still_shows_which_widths_part():
    found = diagnosed(FakeProbe(split_attention))
    assert found.classes == ((1,), tuple(range(2, 18)))
    assert found.parting is None
    assert "no operation is named" in found.notes[0]


def test_one_whose_cache_cannot_be_cut_is_written_anew_for_every_width():
    found = diagnosed(TracedProbe(split_attention, obstacle="states"), reproduction(270))
    assert found.classes[0] == (1,)


def test_ids_that_the_model_has_not_and_prefixes_without_room_are_refused():
    with pytest.raises(UsageError, match="no id 903"):
        diagnosed(TracedProbe(n_vocab=900), reproduction(999))
    with pytest.raises(UsageError, match="no id 1000"):
        diagnosed(TracedProbe(), reproduction(40, rounds=(PastRound(9, (1000, *range(7)), 8),)))
    with pytest.raises(UsageError, match="no room in 310"):
        diagnosed(TracedProbe(n_ctx=310))


def test_where_time_runs_out_while_the_model_is_loaded_that_is_said():
    def slow(setting, deadline):
        raise OutOfTime

    with pytest.raises(EngineError, match=r"m: time ran out while it was loaded: .* --budget"):
        Diagnosing(reproduction(), slow, Deadline(1)).run()


def test_where_time_runs_out_what_was_found_is_told():
    found = diagnosed(TracedProbe(split_attention), seconds=0)
    assert "time ran out" in found.notes[0]
    assert (found.complete, found.classes) == (False, ())
