"""What the demo shows while it runs and says at the end; the run itself is tested with the commands."""

from __future__ import annotations

from dataclasses import replace
from itertools import cycle

from rich.console import Console

from pilotfish.daemon.cli.demo_table import results_table, verdict
from pilotfish.daemon.cli.demo_view import DemoView
from pilotfish.daemon.lab.demonstration import Comparison, time_ratio
from pilotfish.daemon.lab.workloads import MODES, Workload, load_workloads

TASK = Workload("quote", "copy", "Repeat this.", "")


def result(kind: str = "copy", plain: float = 100.0, drafts: float = 200.0, equal: bool = True) -> Comparison:
    return Comparison("quote", kind, "greedy", 100, plain, drafts, 0.9, equal)


def shown(*parts: object, width: int = 120) -> str:
    console = Console(width=width, record=True, force_terminal=False)
    with console.capture() as capture:
        for part in parts:
            console.print(part)
    return capture.get()


def test_groups_are_summed_by_time_and_what_was_lost_is_said() -> None:
    results = [result(), result(plain=100, drafts=50), result("open", drafts=100)]
    assert time_ratio(results[:2]) == 2 / 2.5
    text = shown(results_table(results), *verdict(results, equal=True))
    assert "0.80x" in text
    assert "0.5 s lost" in text
    assert "repeats its input" in text
    assert "writes freely" in text
    assert "3.0 s of decoding became 3.5 s" in text
    assert "repeat their input are slower, at 0.80 of the plain speed" in " ".join(text.split())
    assert "write freely take as long as without drafts" in " ".join(text.split())


def test_a_run_without_any_draft_promises_nothing_by_its_figures() -> None:
    results = [replace(result(drafts=80), acceptance=None), replace(result("open", drafts=130), acceptance=None)]
    text = " ".join(shown(*verdict(results, equal=True)).split())
    assert "No draft was verified" in text
    assert "times as fast" not in text
    assert "No draft was verified" not in shown(*verdict([result(), results[1]], equal=True))


def test_the_table_is_whole_in_80_columns() -> None:
    results = [
        Comparison(workload.name, workload.kind, mode.name, 3000, 1041.25, 12345.67, 1.0, equal)
        for workload, equal in zip(load_workloads(), cycle((True, False)))
        for mode in MODES
    ]
    lines = shown(results_table(results), width=80).splitlines()
    assert "…" not in "".join(lines)
    assert "repeats its input" in [line.strip() for line in lines]
    rows = [line for line in lines if line.rstrip().endswith(("equal", "DIFFER"))]
    assert len(rows) == len(results)
    for row, result in zip(rows, sorted(results, key=lambda result: result.kind), strict=True):
        ids = "equal" if result.equal else "DIFFER"
        assert row.split() == [result.name, *result.mode.split(), "3000", "1041.2", "12345.7", "11.86x", "100%", ids]


def test_ids_that_differ_are_called_so() -> None:
    text = shown(results_table([result(equal=False)]), *verdict([result(equal=False)], equal=False))
    assert "DIFFER" in text
    assert "speculation changed an answer" in text


def test_both_answers_stand_side_by_side_with_their_rates() -> None:
    now = [0.0]
    view = DemoView(2, clock=lambda: now[0])
    assert "loading" in shown(view)
    for speculate, seconds in ((False, 0.1), (True, 0.05)):
        view.begin(TASK, MODES[0], speculate)
        for word in ("one ", "two ", "three "):
            view.hear(word, drafted=int(speculate))
            now[0] += seconds
    text = shown(view)
    assert text.count("one two three") == 2
    assert "1 of 2: quote, greedy" in text
    assert "10 tokens/s" in text
    assert "20 tokens/s" in text


def test_the_picture_is_of_the_prompt_that_gained_most() -> None:
    view = DemoView(2)
    for name, drafts in (("first", 150.0), ("best", 300.0), ("last", 90.0)):
        view.begin(Workload(name, "copy", "x", ""), MODES[0], True)
        view.hear(name, 1)
        view.compared(result(drafts=drafts))
    assert "best, greedy" in shown(view.best)
    assert "300 tokens/s" in shown(view.best)


def test_text_of_a_model_cannot_move_the_cursor() -> None:
    view = DemoView(1)
    view.begin(TASK, MODES[0], True)
    view.hear("a\x1b[2Jb", 0)
    assert "\x1b[2J" not in shown(view)
