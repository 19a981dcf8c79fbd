"""docs/compatibility.md says what the runner's own lists say."""

from __future__ import annotations

from pathlib import Path

from pilotfish.daemon.lab.compatibility import TABLES, written
from pilotfish.daemon.runner.launch_flags import FLAGS

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "compatibility.md"
TEXT = DOCUMENT.read_text(encoding="utf-8")


def test_the_document_has_every_table():
    assert [name for name in TABLES if f"<!-- {name} -->" not in TEXT] == []


def test_the_tables_are_those_of_the_lists():
    assert written(TEXT) == TEXT, "run: python -m pilotfish.daemon.lab.compatibility docs/compatibility.md"


def test_writing_them_anew_mends_whatever_stands_there():
    for name in TABLES:
        start = TEXT.index(f"<!-- {name} -->\n") + len(f"<!-- {name} -->\n")
        spoilt = TEXT[:start] + "| something else |\n" + TEXT[TEXT.index("<!-- / -->", start) :]
        assert written(spoilt) == TEXT


def test_every_flag_stands_in_it():
    assert [flag.name for flag in FLAGS if f"`{flag.name}`" not in TEXT] == []
