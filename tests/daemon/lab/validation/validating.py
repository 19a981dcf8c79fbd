"""Validations of a fake engine, which answers at once."""

from __future__ import annotations

from pilotfish.daemon.lab.fakes import FakeEngine
from pilotfish.daemon.lab.prompt_beginnings import PromptBeginning
from pilotfish.daemon.lab.validation.checked_prompts import AskedPrompt, checked
from pilotfish.daemon.lab.validation.trial_plan import TrialPlan
from pilotfish.daemon.lab.validation.validation_course import ValidationCourse
from pilotfish.daemon.lab.workloads import MODES
from tests.daemon.lab.fake_subject import subject

NO_BOS = PromptBeginning("", by_tokenizer=False, by_template=False)
PROMPTS = [AskedPrompt("tale", "Tell a tale of a fish"), AskedPrompt("list", "List some of the fish that you know")]


def a_course(engine=None, *, tokens=24, **planned) -> ValidationCourse:
    """`planned` are fields of the plan."""
    loaded = subject(engine or FakeEngine())
    prompted = checked(loaded, PROMPTS, NO_BOS, tokens)
    names = tuple(prompt.name for prompt in PROMPTS)
    given = {"drafters": {"suffix": {}}, "lengths": ("2", "4"), "repeats": 2, "oracle_cases": True}
    plan = TrialPlan(names, **{**given, "tokens": tokens, **planned})
    return ValidationCourse(loaded, "fake", plan, prompted, MODES[0])
