"""The benchmark as a picture: how much faster than the baseline each system is, by kind of work."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pilotfish.daemon.lab.bench_document import BenchResult
from pilotfish.daemon.lab.bench_report import ALL, Figures
from pilotfish.daemon.lab.bench_tasks import PASSES
from pilotfish.daemon.lab.workloads import KINDS
from pilotfish.hooks.errors import UsageError

_COLOURS = {"copy": "#1f77b4", "open": "#ff9f40"}
_TITLES = {"copy": "answers that repeat the prompt", "open": "answers that do not"}
_BAR = 0.38  # of the room between two systems


def need_matplotlib() -> None:
    """Raise UsageError, with the remedy, where charts cannot be drawn: before an hour of measuring, not after."""
    if importlib.util.find_spec("matplotlib") is None:
        raise UsageError("charts need matplotlib, which is not installed: pip install 'pilotfish[bench]'")


def draw(result: BenchResult, path: Path) -> None:
    """Write the chart to `path`, an .svg or .png file. Raises UsageError without matplotlib."""
    need_matplotlib()
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    found = result.figures
    modes = list(dict.fromkeys(figure.mode for figure in found))
    names = [system.name for system in result.systems if system.name != result.base]
    size = (6.5 * len(PASSES), (0.55 * len(names) + 1.4) * len(modes))
    with rc_context({"svg.hashsalt": "pilotfish"}):  # the same figures give the same file
        picture = Figure(figsize=size, layout="constrained")
        panels = picture.subplots(len(modes), len(PASSES), squeeze=False, sharex=True)
        for row, mode in zip(panels, modes, strict=True):
            for panel, again in zip(row, PASSES, strict=True):
                here = [figure for figure in found if (figure.mode, figure.again) == (mode, again)]
                _panel(panel, here, names, f"{mode}, {again} pass")
        picture.legend(*panels[0][0].get_legend_handles_labels(), loc="outside upper right", ncols=2, frameon=False)
        picture.supxlabel(f"tokens per second of decoding, relative to {result.base}", fontsize="medium")
        picture.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def _panel(panel: Any, found: Sequence[Figures], names: Sequence[str], title: str) -> None:
    panel.set_title(title, loc="left", fontsize="medium")
    panel.axvline(1.0, color="black", linewidth=1)
    panel.set_yticks(range(len(names)), [_label(name, found) for name in names])
    panel.set_ylim(len(names) - 0.5, -0.5)
    panel.spines[["top", "right"]].set_visible(False)
    for offset, kind in zip((-_BAR / 2, _BAR / 2), KINDS, strict=True):
        bars = [(i, f.decode_ratio) for i, name in enumerate(names) if (f := _find(found, name, kind)) is not None]
        shown = [(i, spread) for i, spread in bars if spread is not None]
        if not shown:
            continue
        medians = [spread.median for _, spread in shown]
        errors = [[s.median - s.low for _, s in shown], [s.high - s.median for _, s in shown]]
        where = [i + offset for i, _ in shown]
        panel.barh(where, medians, _BAR, xerr=errors, color=_COLOURS[kind], label=_TITLES[kind], ecolor="#555555")
        for y, spread in zip(where, (s for _, s in shown), strict=True):
            panel.text(spread.high + 0.03, y, f"{spread.median:.2f}x", va="center", fontsize="small")


def _label(name: str, found: Sequence[Figures]) -> str:
    figure = _find(found, name, ALL)
    compared = f"\nids equal {figure.equal}/{figure.compared}" if figure and figure.compared else ""
    return name + compared


def _find(found: Sequence[Figures], name: str, group: str) -> Figures | None:
    return next((figure for figure in found if (figure.system, figure.group) == (name, group)), None)
