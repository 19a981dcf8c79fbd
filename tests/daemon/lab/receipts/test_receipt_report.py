"""The page of a receipt: all in one file, with every trial, and honest about what it lacks."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from pilotfish.daemon.lab.receipts import receipt_report
from pilotfish.daemon.lab.receipts.receipt_report import report
from pilotfish.daemon.lab.receipts.receipt_types import TrialKind, TrialVerdict
from tests.daemon.lab.receipts.receipts import a_receipt, a_trial


@pytest.fixture(scope="module")
def page():
    return report(a_receipt())


def test_it_refers_to_nothing_outside(page):
    sources = re.findall(r"""(?:src|href|url)\s*[=(]\s*["']?([^"'\s>)]+)""", page)
    assert sources
    assert all(source.startswith("data:image/svg+xml;base64,") for source in sources)
    assert "default-src 'none'" in page


def test_it_has_its_pictures_and_every_trial(page):
    assert page.count("<img ") == 4
    for trial in a_receipt().trials:
        assert trial.name in page


def test_what_a_model_or_file_is_called_is_text(page):
    receipt = a_receipt()
    named = replace(receipt, pins=replace(receipt.pins, model="<script>alert(1)</script>"))
    assert "<script>" not in report(named)


def test_rates_of_a_diverged_answer_are_marked():
    bad = a_trial("bad", verdict=TrialVerdict.DIFFERENT, differs_at=1)
    page = report(a_receipt(trials=(a_trial("p", TrialKind.PLAIN), bad)))
    assert "(diagnostic)" in page
    assert "from token 1" in page


def test_without_matplotlib_it_says_what_is_missing(monkeypatch):
    monkeypatch.setattr(receipt_report, "can_plot", lambda: False)
    page = report(a_receipt())
    assert "pip install &#39;pilotfish[lab]&#39;" in page
    assert "<img" not in page
