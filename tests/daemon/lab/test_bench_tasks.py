"""The second pass: the same tasks with small changes that depend on nothing but their text."""

from __future__ import annotations

from pilotfish.daemon.lab import bench_tasks
from pilotfish.daemon.lab.bench_tasks import passes
from pilotfish.daemon.lab.workloads import Workload, load_workloads


def changed(prompt: str) -> str:
    return bench_tasks.changed(Workload("a", "copy", prompt, "be brief")).prompt


def test_code_gets_a_function_renamed_that_the_instruction_does_not_speak_of():
    code = "Rename `total`.\ndef total(x):\n    return load(x)\ndef load(x):\n    return reload(load)"
    expected = (
        "Rename `total`.\ndef total(x):\n    return load_from_file(x)\n"
        "def load_from_file(x):\n    return reload(load_from_file)"
    )
    assert changed(code) == expected


def test_without_code_the_first_number_of_two_digits_goes_up():
    assert changed('[{"id": 1, "age": 31}, {"id": 2, "age": 27}]') == '[{"id": 1, "age": 32}, {"id": 2, "age": 27}]'
    assert changed("Take 2024 and 99.") == "Take 2024 and 100."


def test_anything_else_is_asked_again_with_an_instruction_in_front():
    assert changed("Tell me a story.") == "Please do this once more. Tell me a story."


def test_every_workload_is_asked_twice_and_never_with_the_same_words():
    first, second = passes(load_workloads()).values()
    assert [workload.name for workload in first] == [workload.name for workload in second]
    assert len(first) == 8
    for before, after in zip(first, second, strict=True):
        assert before.prompt != after.prompt
        assert (before.kind, before.system) == (after.kind, after.system)
