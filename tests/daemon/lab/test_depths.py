"""Text in front of a task."""

from __future__ import annotations

from pilotfish.daemon.lab.depths import after_text, natural_text
from pilotfish.daemon.lab.workloads import Workload, load_workloads

TASK = Workload("tale", "open", "Tell a tale.", "be brief")


def words(text: str) -> int:
    return len(text.split())


def test_the_text_is_as_long_as_asked_for_and_one_prompt_longer_at_most():
    workloads = load_workloads()
    longest = max(words(workload.prompt) for workload in workloads)
    for wanted in (1, 100, 2000):
        assert wanted <= words(natural_text(workloads, wanted, words)) <= wanted + longest


def test_prompts_follow_each_other_from_the_first_on_and_begin_anew():
    other = Workload("again", "copy", "Say 31 again.", "")
    assert natural_text([other, TASK], 7, words) == "Say 31 again.\n\nTell a tale.\n\nSay 31 again."


def test_no_text_is_no_change():
    assert natural_text(load_workloads(), 0, words) == ""
    assert after_text(TASK, "") == TASK


def test_the_task_comes_last_and_is_otherwise_the_same():
    after = after_text(TASK, "Once upon a time.")
    assert after == Workload("tale", "open", "Once upon a time.\n\nTell a tale.", "be brief")
