"""What loading and holding a model costs, beside the baseline."""

from __future__ import annotations

from pilotfish.daemon.lab.bench_loads import load_figures
from pilotfish.daemon.lab.bench_report import Spread
from pilotfish.daemon.lab.benchmark import Load


def test_figures_are_medians_over_blocks_and_ratios_are_within_a_block():
    """The machine loads half as fast in the second block; both systems suffer, the ratio does not."""
    loads = [
        Load("stock", "greedy", 0, 1.0, 100, 150),
        Load("mine", "greedy", 0, 2.0, 50, 150),
        Load("stock", "greedy", 1, 2.0, 100, 150),
        Load("mine", "greedy", 1, 4.0, 50, 300),
    ]
    stock, mine = load_figures(loads, "stock")
    assert (stock.system, mine.system) == ("stock", "mine")
    assert mine.seconds == Spread(3.0, 2.0, 4.0)
    assert mine.seconds_ratio == Spread(2.0, 2.0, 2.0)
    assert (mine.resident, mine.resident_ratio) == (Spread(50, 50, 50), Spread(0.5, 0.5, 0.5))
    assert mine.peak_ratio == Spread(1.5, 1.0, 2.0)
    assert stock.seconds_ratio == Spread(1.0, 1.0, 1.0)


def test_a_block_without_the_baseline_has_no_ratio_and_an_unknown_peak_stays_unknown():
    loads = [Load("stock", "greedy", 0, 1.0, 100, None), Load("mine", "seeded", 0, 2.0, 50, None)]
    _, mine = load_figures(loads, "stock")
    assert (mine.seconds_ratio, mine.resident_ratio) == (None, None)
    assert (mine.peak, mine.peak_ratio) == (None, None)
