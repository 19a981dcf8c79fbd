"""What the drafter takes for granted of text before a model taught it better: a probability for each cell.

Counted over 96 answers of SmolLM2-135M (Q4_1; 48 prompts, half of which ask for copies; greedy, and at temperature 0.8
with a repeat penalty), 16,000 ids, each compared with what the drafter would have said at its place. For the source
MEMORY the memory was what the model had answered to all other prompts. A cell that was seldom seen stands on its kind
and length at any place, and that on its kind.
"""

from __future__ import annotations

import json
from array import array
from functools import cache
from importlib import resources

from pilotfish.plugins.drafters._suffix.calibration import N_CELLS


@cache
def priors() -> array[float]:
    """(N_CELLS,) probabilities, by `calibration.cell`."""
    table = array("d", json.loads(resources.files(__package__).joinpath("priors.json").read_text(encoding="utf-8")))
    if len(table) != N_CELLS:
        raise ValueError(f"priors.json has {len(table)} cells, not {N_CELLS}; it is of another version of pilotfish")
    return table
