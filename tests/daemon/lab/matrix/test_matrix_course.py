"""The matrix: every model in a process of its own, rows that are kept, and the page for people."""

from __future__ import annotations

import json
import os
import textwrap
from dataclasses import replace

import pytest

from pilotfish.daemon.lab.matrix import matrix_course
from pilotfish.daemon.lab.matrix.matrix_case import KeptPrefix, MatrixAnswer, MatrixCase, MatrixRow, MatrixSize, cases
from pilotfish.daemon.lab.matrix.matrix_child import MARK
from pilotfish.daemon.lab.matrix.matrix_course import MatrixCourse, read_rows
from pilotfish.daemon.lab.matrix.matrix_document import document, spans
from pilotfish.hooks.errors import EngineError

SIZE = MatrixSize((32, 300), 8)
LLAMA, QWEN = MatrixCase("llama", "Q4_0", "llama"), MatrixCase("qwen35", "Q4_0", "llama")


def row_of(case=LLAMA, *differences, **more):
    compared = tuple(MatrixAnswer(32, "greedy", "suffix", 8, 4, 2, at) for at in (None, *differences))
    found = {"lane": "flash", "widths": (1, 2, 3, 8), "rollback": "cuts the tail", "distinct": 5, "weights": 7, **more}
    return MatrixRow(case, SIZE, compared=compared, kept=(KeptPrefix(48, 47, True), KeptPrefix(600, 0, None)), **found)


@pytest.fixture
def child(tmp_path, monkeypatch):
    """Let a script stand in for the process that measures a row."""

    def write(text):
        (tmp_path / "matrix_stand_in.py").write_text(textwrap.dedent(text))
        monkeypatch.setattr(matrix_course, "CHILD", "matrix_stand_in")
        monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")

    return write


def course(*cases, **more):
    return MatrixCourse(cases, SIZE, find=lambda case: case.architecture, **more)


def test_a_row_survives_its_log(tmp_path):
    log = tmp_path / "rows.jsonl"
    rows = [row_of(), row_of(QWEN, 3, failed="loading: no")]
    log.write_text("\n".join(json.dumps(row.to_json()) for row in rows) + '\n{"case": {"archi')
    assert read_rows(log) == rows
    assert read_rows(tmp_path / "none.jsonl") == []
    assert [row.differences for row in rows] == [0, 1]


def test_a_changed_prefix_answer_counts_as_a_difference():
    assert row_of(LLAMA).differences == 0
    assert MatrixRow(LLAMA, SIZE, kept=(KeptPrefix(48, 47, False),)).differences == 1


def test_every_architecture_meets_every_format_on_every_engine():
    assert cases(["a", "b"], ["Q4_0", "Q8_0"], ["llama", "ik"])[2] == MatrixCase("a", "Q4_0", "ik")
    assert len(cases(["a", "b"], ["Q4_0", "Q8_0"], ["llama", "ik"])) == 8


def test_rows_of_the_same_size_are_not_measured_again(child):
    child("raise SystemExit('asked')")
    known = row_of(LLAMA)
    ((row, new),) = course(LLAMA, known=[known]).run()
    assert (row, new) == (known, False)
    other = MatrixRow(LLAMA, MatrixSize((32,), 8))
    ((row, new),) = course(LLAMA, known=[other]).run()
    assert new
    assert "asked" in row.failed


def test_what_stock_does_is_added_to_a_row_that_is_known(child, monkeypatch):
    child("raise SystemExit('asked')")
    monkeypatch.setattr(matrix_course, "ask_stock", lambda server, path: f"{server} loads {path}")
    known = row_of(LLAMA)
    ((row, new),) = course(LLAMA, known=[known], server="stock").run()
    assert (row, new) == (replace(known, stock="stock loads llama"), True)
    ((again, new),) = course(LLAMA, known=[known, row], server="stock").run()
    assert (again, new) == (row, False)


def test_a_crash_costs_its_own_row_and_says_where_it_happened(child):
    child(f"""
        import json, os, sys
        job = json.loads(sys.argv[1])
        print({MARK!r} + json.dumps({{"stage": "greedy after 32 tokens"}}), flush=True)
        if job["case"]["architecture"] == "llama":
            print("GGML_ASSERT(false) failed", file=sys.stderr, flush=True)
            os.abort()
        row = {row_of(QWEN).to_json()!r}
        print({MARK!r} + json.dumps({{"row": row}}), flush=True)
    """)
    (crashed, _), (whole, _) = course(LLAMA, QWEN).run()
    assert crashed.failed.startswith("greedy after 32 tokens: ended by signal 6")
    assert "GGML_ASSERT(false) failed" in crashed.failed
    assert whole == row_of(QWEN)


def test_a_model_that_cannot_be_made_is_a_row_with_the_reason():
    def find(case):
        raise EngineError("no libllama")

    ((row, _),) = MatrixCourse([LLAMA], SIZE, find=find).run()
    assert row.failed == "it could not be made: no libllama"


def test_the_page_has_a_line_for_each_model_and_counts_what_was_compared():
    again = MatrixCase("llama", "Q8_0", "llama")
    failed = MatrixRow(MatrixCase("phi3", "Q8_0", "llama"), SIZE, failed="no | way")
    text = document([row_of(reason="too narrow"), row_of(again, reason="too narrow"), row_of(QWEN, 3), failed])
    assert "4 models, of which 3 speculate and 1 failed; 32 ids compared, 1 answers different." in text
    assert " | Q4_0, llama | 1 to 3, 8 | cuts the tail | 47 of 48, 0 of 600 | 8 | 0 | flash |" in text
    assert " | Q4_0, llama | 1 to 3, 8 | cuts the tail | 47 of 48, 0 of 600 | 16 | **1** | flash |" in text
    assert text.index("## Attention to everything") < text.index("**llama**") < text.index("## Running states")
    assert "- too narrow: llama Q4_0, Q8_0" in text
    assert "**failed**: no / way" in text
    assert "8 ids after 32 and 300 tokens" in " ".join(text.split())
    assert "- `mllama`" in text
    assert "Not measured in Q4_K_M: llama, " in text
    assert "Not measured in Q4_0: mistral3, " in text


@pytest.mark.parametrize(("widths", "text"), [((1,), "1"), ((1, 2, 3, 8), "1 to 3, 8"), ((8, 16), "8, 16"), ((), "")])
def test_widths_are_told_as_spans(widths, text):
    assert spans(widths) == text
