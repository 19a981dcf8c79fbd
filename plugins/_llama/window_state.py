"""The state of a sequence whose cache has a second part, for layers with a sliding window.

libllama writes two blocks: the cells of the layers that see everything, and those that the others still see. The second
part is a ring: a forward's cells go behind those of the forward before, and at the ring's end to its beginning, over
cells that no layer sees any more. So position p stands at p modulo the ring's size, as long as a state is put back that
way. A layer adds its cells up in the order of their places, so a sequence with its cells at other places has rows with
other last bits (measured); and libllama, left to itself, would put a state's cells at the ring's beginning.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from pilotfish.plugins._cells.context import Bytes
from pilotfish.plugins._llama.sequence_state import (
    LayerRows,
    Positions,
    SequenceState,
    expect,
    in_order,
    lead,
    opened,
    read_block,
)


@dataclass(frozen=True, slots=True, eq=False)
class WindowState:
    """`whole`: the cells of the layers that see everything, from position 0 on; `window`: the last of them, as the
    other layers have them. Both in the order of their positions."""

    whole: SequenceState
    window: SequenceState

    @property
    def cells(self) -> int:
        """How many tokens it is the state after."""
        return self.whole.cells

    def packed(self) -> Bytes:
        """All cells one behind the other."""
        return self._bytes(self.window)

    def written(self, ring: int) -> Bytes:
        """As libllama reads it into an empty sequence, each cell at its place in a ring of `ring` cells.

        Places whose cells are not known, which no layer sees, are filled with zeros. Where the next cell's place lies
        in the middle, a cell of that position stands there: cut it, and libllama goes on at its place.
        """
        return self._bytes(_at_places(self.window, self.cells, ring))

    def _bytes(self, window: SequenceState) -> Bytes:
        whole = self.whole
        blocks = [*whole.block([whole] if whole.cells else []), *window.block([window] if window.cells else [])]
        return np.concatenate([lead(whole.sequence), *blocks])


def parse_window(data: Bytes) -> WindowState:
    """`data` taken apart. Raises UnknownLayout."""
    reader, sequence = opened(data)
    whole, window = read_block(reader, sequence), read_block(reader, sequence)
    in_order(whole.positions)
    expect(reader.left == 0, "goes on after its second cache")
    expect(not whole.positions[:1].any(), "does not begin at position 0")
    expect(window.cells > 0 or whole.cells == 0, "has no cells of its windows")
    window = _sorted(window)
    expect(window.positions[-1:].tolist() == whole.positions[-1:].tolist(), "has windows that end elsewhere")
    return WindowState(whole, window)


def moved_window(source: WindowState, kinds: tuple[int, int], into: WindowState) -> Bytes:
    """As `sequence_state.moved`: `into` with `source`'s cells behind its own."""
    whole = _joined(into.whole, source.whole, kinds)
    window = _joined(into.window, source.window, kinds)
    first = int(source.window.positions[0]) if source.window.cells else 0
    there = int(np.searchsorted(window.positions, first))
    return WindowState(whole, window.part(there, window.cells)).packed()


def _joined(into: SequenceState, source: SequenceState, kinds: tuple[int, int]) -> SequenceState:
    """`into`, and those of `source`'s cells that come after it, as numbers of `kinds`, in `into`'s place."""
    end = int(into.positions[-1]) + 1 if into.cells else 0
    new = source.part(int(np.searchsorted(source.positions, end)), source.cells)
    sides = tuple(tuple(layer.as_kind(kind) for layer in side) for side, kind in zip(new.sides, kinds, strict=True))
    if not into.cells:
        return replace(into, positions=new.positions, sides=(sides[0], sides[1]))
    old_keys, old_values = into.sides
    expect(len(old_keys) == len(sides[0]) and len(old_values) == len(sides[1]), "has other layers than it continues")
    keys, values = (
        tuple(_stacked(old, more) for old, more in zip(olds, mores, strict=True))
        for olds, mores in ((old_keys, sides[0]), (old_values, sides[1]))
    )
    return replace(into, positions=np.concatenate([into.positions, new.positions]), sides=(keys, values))


def _stacked(old: LayerRows, more: LayerRows) -> LayerRows:
    expect((old.kind, old.rows.shape[1]) == (more.kind, more.rows.shape[1]), "has other rows than it continues")
    return LayerRows(old.kind, np.concatenate([old.rows, more.rows]))


def _sorted(state: SequenceState) -> SequenceState:
    order = np.argsort(state.positions)
    keys, values = (tuple(LayerRows(one.kind, one.rows[order]) for one in side) for side in state.sides)
    return replace(state, positions=in_order(state.positions[order]), sides=(keys, values))


def _at_places(window: SequenceState, end: int, ring: int) -> SequenceState:
    if not window.cells:
        return window
    positions = _positions_by_place(end, ring)
    source = positions - int(window.positions[0])
    known = (source >= 0) & (source < window.cells)
    keys, values = (tuple(_placed(one, source, known) for one in side) for side in window.sides)
    return replace(window, positions=positions, sides=(keys, values))


def _positions_by_place(end: int, ring: int) -> Positions:
    """Which position's cell stands at each place of the ring after `end` tokens; at the next one's, the next one's."""
    if end <= ring or end % ring == 0:
        return np.arange(max(0, end - ring), end, dtype=np.int32)
    places = np.arange(ring, dtype=np.int32)
    turn = end - end % ring
    return np.where(places <= end % ring, turn + places, turn - ring + places).astype(np.int32)


def _placed(layer: LayerRows, source: Positions, known: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> LayerRows:
    rows = np.zeros((len(source), layer.rows.shape[1]), np.uint8)
    rows[known] = layer.rows[source[known]]
    return LayerRows(layer.kind, rows)
