"""A receipt as one HTML page: figures, pictures, every trial. It refers to nothing outside of itself."""

from __future__ import annotations

import base64
from importlib import resources

import jinja2

from pilotfish.daemon.lab.receipts.receipt_figures import FEW, groups_of, rate_of
from pilotfish.daemon.lab.receipts.receipt_plots import MISSING, can_plot, plots
from pilotfish.daemon.lab.receipts.receipt_summary import summary
from pilotfish.daemon.lab.receipts.receipt_types import Receipt, TrialRecord, TrialVerdict

REPORT = "report.html"


def report(receipt: Receipt) -> str:
    """The page. Without matplotlib it has everything but the pictures, and says how to get them."""
    pictures = {title: _data_uri(svg) for title, svg in plots(receipt).items()} if can_plot() else {}
    source = resources.files(__package__).joinpath("report.html.jinja").read_text(encoding="utf-8")
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    return environment.from_string(source).render(
        receipt=receipt,
        groups=groups_of(receipt),
        ratios={(one.drafter, one.length): one.ratio for one in receipt.judgements},
        pictures=pictures,
        missing="" if pictures else MISSING,
        rate=_shown_rate,
        few=FEW,
        words=summary(receipt),
    )


def _shown_rate(trial: TrialRecord) -> str:
    """Ids per second; of a diverged answer marked as what it is."""
    rate = rate_of(trial)
    if rate is None:
        return ""
    return f"{rate:.1f}" + (" (diagnostic)" if trial.verdict is TrialVerdict.DIFFERENT else "")


def _data_uri(svg: bytes) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(svg).decode()
