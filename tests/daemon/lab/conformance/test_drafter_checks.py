"""The checks of `pilotfish conformance`: each catches its fault, and none sees one in what is sound."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from pilotfish.daemon.config import files as config_file
from pilotfish.daemon.config.reader import parse
from pilotfish.daemon.config.types import Config, Speculation
from pilotfish.daemon.lab.conformance import CHECKS, CheckResult, Harness, Nonconformance, PluginReport, drafter_checks
from pilotfish.daemon.lab.conformance.plugin import Setup, examine_drafter, examine_file
from pilotfish.hooks.errors import UsageError
from pilotfish.hooks.types import Placement
from pilotfish.lab.conformance import DrafterConformance
from pilotfish.lab.fakes import ScriptedDrafter
from tests.fakes.plugin_files import GOOD, write

# A drafter named "mine" whose session is `Mine`, which the body fills in.
PLUGIN = """
import sys
import time

from pilotfish.hooks import EMPTY, Ack, History, HistoryDrafter, Placement, Proposal, hookimpl
from pilotfish.hooks.drafting import HistorySession


class Mine(HistorySession):
{session}


class Drafter(HistoryDrafter):
    name = "mine"
    placement = Placement.{placement}

    def open(self, target, prompt):
        return Mine(self, prompt)


@hookimpl
def pilotfish_register_drafters(register):
    register("mine", Drafter)
"""

# What the session does -> the check that is the first to catch it, and words of what it says.
FAULTS = {
    "proposes one too many": (
        "def propose(self, k): return Proposal((1,) * (k + 1))",
        ("proposals are clean", "propose(0) gave 1 tokens; give at most k"),
    ),
    "proposes ids that there are not": (
        "def propose(self, k): return Proposal((40_000,) * k)",
        ("proposals are clean", "gave the id 40000, which is outside the vocabulary of 32 ids"),
    ),
    "proposes words": (
        'def propose(self, k): return Proposal(("fish",) * k)',
        ("proposals are clean", "gave 'fish', a str; make every id an int"),
    ),
    "proposes whole floats": (
        "def propose(self, k): return Proposal((1.0,) * k)",
        ("proposals are clean", "gave 1.0, a float; make every id an int"),
    ),
    "answers a list": (
        "def propose(self, k): return [1] * k",
        ("proposals are clean", "returned a list; return a Proposal"),
    ),
    "puts a list into its proposal": (
        "def propose(self, k): return Proposal([1] * k)",
        ("proposals are clean", "propose(0).tokens is a list; make it a tuple"),
    ),
    "answers None": (
        "def propose(self, k): return None",
        ("proposals are clean", "returned a NoneType"),
    ),
    "is surer than sure": (
        "def propose(self, k): return Proposal((1,) * k, (1.5,) * k)",
        ("proposals are clean", "a confidence of 1.5"),
    ),
    "is sure of more than it proposes": (
        "def propose(self, k): return Proposal((), (0.5,))",
        ("proposals are clean", "gave 1 confidences for 0 tokens"),
    ),
    "raises in propose": (
        "def propose(self, k): return 1 // 0",
        ("proposals are clean", "propose(0) raised ZeroDivisionError"),
    ),
    "ends the program": (
        "def propose(self, k): sys.exit(3)",
        ("proposals are clean", "propose(0) raised SystemExit: 3"),
    ),
    "raises what is no Exception": (
        "def propose(self, k): raise KeyboardInterrupt('not yours')",
        ("proposals are clean", "propose(0) raised KeyboardInterrupt: not yours"),
    ),
    "is as sure as True": (
        "def propose(self, k): return Proposal((1,) * k, (True,) * k)",
        ("proposals are clean", "a confidence of True"),
    ),
    "hangs in propose": (
        "def propose(self, k): time.sleep(600)",
        ("proposals are clean", "propose(0) had not returned after"),
    ),
    "hangs in commit": (
        "def commit(self, tokens): time.sleep(600)",
        ("rolls back", "commit([5]) had not returned after"),
    ),
    "raises in close": (
        "def close(self): raise OSError('it was closed already')",
        ("is a drafter", "close() raised OSError: it was closed already"),
    ),
    "begins with nothing": (
        "def __init__(self, drafter, prompt): super().__init__(drafter, ())",
        ("starts with the prompt", "acknowledged 0 ids, but the history has 8"),
    ),
    "adds its proposal to the history": (
        "def propose(self, k): self.history.commit([1] * k); return Proposal((1,) * k)",
        ("proposing changes nothing", "acknowledged 16 ids, but the history has 8"),
    ),
    "writes into the history's array": (
        "def propose(self, k): self.history.tokens.append(1); return Proposal((1,) * k)",
        ("proposing changes nothing", "the history's array was changed in place: it holds 10 ids, 8 were committed"),
    ),
    "counts a rollback as a round": (
        "def rollback(self): a = self.history.ack(); n = getattr(self, 'n', -1); self.n = n + 1; "
        "return Ack(a.round + max(0, n), a.position, a.digest)",
        ("rolls back", "acknowledged round"),
    ),
    "says nothing to a rollback": (
        "def rollback(self): pass",
        ("starts with the prompt", "rollback() returned a NoneType, not an Ack"),
    ),
    "keeps what it proposed instead of what was committed": (
        "last = ()\n"
        "    def propose(self, k): self.last = [1] * k; return Proposal((1,) * k)\n"
        "    def rollback(self): self.last = (); return self.history.ack()\n"
        "    def commit(self, tokens): return self.history.commit(self.last or tokens)",
        ("takes what was committed", "commit([7]) acknowledged 12 ids, but the history has 9"),
    ),
    "lies about the digest": (
        "def commit(self, tokens): a = self.history.commit(tokens); return Ack(a.round, a.position, '0' * 32)",
        ("rolls back", "with another digest than the committed ones have"),
    ),
    "only takes what it was asked about": (
        "asked = False\n"
        "    def propose(self, k): self.asked = True; return EMPTY\n"
        "    def rollback(self): self.asked = True; return self.history.ack()\n"
        "    def commit(self, tokens): assert self.asked; return self.history.commit(tokens)",
        ("commits without proposals", "commit([5]) raised AssertionError"),
    ),
    "counts tokens as rounds": (
        "def commit(self, tokens): return [self.history.commit([token]) for token in tokens][-1]",
        ("one commit or many", "acknowledged round 12, but 1 commits were made"),
    ),
    "loses count after fifty rounds": (
        "def commit(self, tokens):\n"
        "        ack = self.history.commit(tokens)\n"
        "        return ack if ack.round < 50 else Ack(50, ack.position, ack.digest)",
        ("keeps its history", "acknowledged round 50"),
    ),
    "keeps the history between sessions": (
        "kept = History()\n"
        "    def __init__(self, drafter, prompt):\n"
        "        super().__init__(drafter, prompt)\n"
        "        self.history = self.kept\n"
        "        self.history.commit(prompt)",
        ("starts with the prompt", "acknowledged 16 ids, but the history has 8"),
    ),
    "takes up the commits of a session with another prompt": (
        "left = []\n"
        "    def __init__(self, drafter, prompt):\n"
        "        super().__init__(drafter, [*prompt, *(t for first, t in self.left if first != prompt[0])])\n"
        "    def commit(self, tokens):\n"
        "        self.left.append((self.history.tokens[0], tokens[0]))\n"
        "        return self.history.commit(tokens)",
        ("sessions are apart", "ids, but the history has 9"),
    ),
    "cannot take a long prompt": (
        "def __init__(self, drafter, prompt): assert len(prompt) < 100; super().__init__(drafter, prompt)",
        ("takes a long history", "... 500 ids]) raised AssertionError"),
    ),
}


def plugin(folder: Path, body: str, *, placement: Placement = Placement.THREAD) -> Path:
    text = PLUGIN.format(session="    " + body if body else "    pass", placement=placement.name)
    return write(folder, "mine.py", text)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PILOTFISH_STATE", str(tmp_path / "state"))
    monkeypatch.setattr(config_file, "SYSTEM_FILE", tmp_path / "etc" / "pilotfish.toml")
    tmp_path.chmod(0o755)
    return tmp_path


def setup(**settings: object) -> Setup:
    return Setup(Config(), **{"long": 500, **settings})


def hanging(**settings: object) -> Setup:
    return setup(patience=1.0, **settings)  # also for the calls before the one that hangs


def failed(report: PluginReport) -> list[CheckResult]:
    return [result for verdict in report.verdicts for result in verdict.results if result.outcome == "failed"]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_caught_by_the_check_for_it_which_says_what_was_seen(folder: Path, fault: str) -> None:
    body, (check, words) = FAULTS[fault]
    report = examine_file(plugin(folder, body), hanging() if "hangs" in fault else setup())
    assert not report.passed
    first = failed(report)[0]
    assert first.check == check
    assert words in first.seen
    assert first.demand.endswith(".")


def test_there_is_a_fault_for_every_check() -> None:
    caught = {check for _, (check, _) in FAULTS.values()}
    assert {check.name for check in CHECKS} - caught == {"closes and reopens", "inline is quick"}  # see the next two


def test_a_session_that_was_left_in_the_middle_and_blocks_the_next_is_caught() -> None:
    class OneSlot(ScriptedDrafter):
        def open(self, target: object, prompt: Sequence[int]) -> object:
            if self.sessions and not self.sessions[-1].history.round:
                raise OSError("busy")
            return super().open(target, prompt)  # type: ignore[arg-type]  # the suite passes a real pin

    with pytest.raises(Nonconformance, match=r"open\(.*\) raised OSError: busy"):
        drafter_checks.closes_and_reopens(Harness(OneSlot()))


def test_one_that_calls_itself_inline_and_is_slow_is_caught(folder: Path) -> None:
    slow = plugin(folder, "def propose(self, k): time.sleep(0.005); return EMPTY", placement=Placement.INLINE)
    [result] = failed(examine_file(slow, setup()))
    assert result.check == "inline is quick"
    assert "say Placement.THREAD" in result.seen


def test_after_a_call_that_hangs_nothing_more_is_asked_of_the_drafter(folder: Path) -> None:
    [verdict] = examine_file(plugin(folder, FAULTS["hangs in propose"][0]), hanging()).verdicts
    outcomes = [result.outcome for result in verdict.results]
    assert outcomes.count("failed") == 1
    assert set(outcomes[outcomes.index("failed") + 1 :]) == {"not run"}
    assert not verdict.passed


def test_what_raised_is_named_with_its_file_and_line(folder: Path) -> None:
    path = plugin(folder, FAULTS["raises in propose"][0])
    line = path.read_text().splitlines().index("    def propose(self, k): return 1 // 0") + 1
    assert f"{path}:{line}" in failed(examine_file(path, setup()))[0].seen


def test_one_that_is_slower_than_the_deadline_passes_with_a_note(folder: Path) -> None:
    impatient = Config(speculation=Speculation(deadline_ms=1))
    slow = plugin(folder, "def propose(self, k): time.sleep(0.002 if k == 7 else 0); return EMPTY")
    [verdict] = examine_file(slow, Setup(impatient, long=500)).verdicts
    assert verdict.passed
    assert "more than speculation.deadline_ms (1 ms) for one is dropped" in verdict.note


class TestDeterminism:
    BODY = "def propose(self, k): self.n = getattr(self, 'n', 0) + 1; return Proposal((self.n % 9,) * k)"

    def test_is_not_demanded(self, folder: Path) -> None:
        assert examine_file(plugin(folder, self.BODY), setup()).passed

    def test_can_be_demanded(self, folder: Path) -> None:
        first = failed(examine_file(plugin(folder, self.BODY), setup(deterministic=True)))[0]
        assert first.check == "proposing changes nothing"
        assert "the second proposal for one history" in first.seen


class TestSound:
    def test_a_drafter_passes_everything(self, folder: Path) -> None:
        report = examine_file(plugin(folder, "", placement=Placement.INLINE), setup(deterministic=True))
        assert (failed(report), report.problems) == ([], ())
        [verdict] = report.verdicts
        assert [result.check for result in verdict.results] == ["is built", *(check.name for check in CHECKS)]
        assert {"open", "propose", "commit", "rollback", "close"} <= set(verdict.slowest)

    @pytest.mark.parametrize("name", ["suffix", "oracle"])
    def test_a_built_in_passes_by_its_name(self, name: str) -> None:
        report = examine_drafter(name, setup())
        assert (failed(report), report.passed) == ([], True)

    def test_a_drafter_gets_its_table(self, folder: Path) -> None:
        config = parse({"drafters": {"oracle": {"tokens": [40_000]}}})
        first = failed(examine_drafter("oracle", Setup(config)))[0]
        assert "40000" in first.seen

    def test_a_table_that_the_factory_refuses_is_a_failure(self) -> None:
        config = parse({"drafters": {"suffix": {"min_match": "three"}}})
        [result] = failed(examine_drafter("suffix", Setup(config)))
        assert result.check == "is built"
        assert "drafters.suffix.min_match: expected" in result.seen


class TestFile:
    def test_that_raises_when_it_is_loaded_registers_nothing(self, folder: Path) -> None:
        report = examine_file(write(folder, "bad.py", GOOD.format(name="mine") + "    1 / 0\n"), setup())
        assert not report.passed
        assert report.verdicts == ()
        assert "ZeroDivisionError" in report.problems[0]
        assert "bad.py:" in report.problems[0]

    def test_that_hangs_when_it_is_loaded_is_reported(self, folder: Path) -> None:
        report = examine_file(write(folder, "slow.py", "import time\ntime.sleep(600)\n"), setup(patience=0.1))
        assert "slow.py had not returned after 0.1 s" in report.problems[0]

    def test_that_others_may_write_is_not_loaded(self, folder: Path) -> None:
        path = plugin(folder, "")
        path.chmod(0o666)
        report = examine_file(path, setup())
        assert report.verdicts == ()
        assert "chmod go-w" in report.problems[0]

    def test_that_registers_nothing_is_told_how_to(self, folder: Path) -> None:
        report = examine_file(write(folder, "empty.py", "x = 1\n"), setup())
        assert not report.passed
        assert "pilotfish_register_drafters" in report.problems[0]

    @pytest.mark.parametrize("name", ["_mine.py", ".mine.py", "mine.txt"])
    def test_that_the_loader_would_pass_over_is_an_error(self, folder: Path, name: str) -> None:
        with pytest.raises(UsageError, match="would not be loaded"):
            examine_file(write(folder, name, GOOD.format(name="mine")), setup())

    def test_that_is_not_there_is_an_error(self, folder: Path) -> None:
        with pytest.raises(UsageError, match="is not a file"):
            examine_file(folder / "nowhere.py", setup())

    def test_whose_names_are_taken_is_told_so(self, folder: Path) -> None:
        report = examine_file(write(folder, "mine.py", GOOD.format(name="suffix")), setup())
        assert report.problems == ("the drafter 'suffix' would be refused: that name is registered already; rename it",)
        assert report.verdicts[0].passed

    def test_only_what_was_asked_for_is_checked(self, folder: Path) -> None:
        second = (
            "\n    @hookimpl\n    def pilotfish_register_bridges(register):\n        register('b', lambda a, b: None)\n"
        )
        path = write(folder, "two.py", GOOD.format(name="one") + second)
        assert [v.name for v in examine_file(path, setup()).verdicts] == ["one", "b"]
        assert [v.name for v in examine_file(path, setup(), "one").verdicts] == ["one"]
        with pytest.raises(UsageError, match="registers no 'three'; it registers one, b"):
            examine_file(path, setup(), "three")


def test_the_pytest_suite_has_a_test_for_every_check_that_suits_any_drafter() -> None:
    used = set().union(*(test.__code__.co_names for name, test in vars(DrafterConformance).items() if "test_" in name))
    assert {check.run.__name__ for check in CHECKS} - used == {"takes_a_long_history", "inline_is_quick"}
