"""What the drafter takes for granted of text before a model taught it better: a probability for each cell.

Counted over 94 answers of SmolLM2-135M (Q4_1; 48 prompts, half of which ask for copies; greedy, and at temperature 0.8
with a repeat penalty), 17,000 ids, each compared with what the drafter would have said at its place; by source, kind of
evidence and match length, whatever the place, and never less for a longer match. For the source MEMORY the memory was
what the model had answered to all other prompts; where four tokens and more match, it stands half on the other source,
because matches as long come from related texts, of which there were none.
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
