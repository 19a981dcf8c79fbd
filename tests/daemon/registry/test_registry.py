"""Registries: what registers, under which names, how it is built, and who is told."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from pilotfish.daemon.config.types import Config, Plugins
from pilotfish.daemon.lab.fakes.fake_vocabulary import FakeVocabulary
from pilotfish.daemon.registry.registry import Registry
from pilotfish.hooks.protocols import Bridge, Verifier
from pilotfish.hooks.types import Lane, SessionInfo, SessionReport, TokenizerPin
from pilotfish.hooks.vocabulary import ByteVocabulary
from pilotfish.lab.fakes import fake_pin
from tests.daemon.registry.registries import OTHER, OWN, load, names
from tests.fakes.plugin_files import GOOD, write

TEN_LINES = """
    from pilotfish.hooks import HistoryDrafter, hookimpl

    class Echo(HistoryDrafter):
        name = "echo"

        def suggest(self, tokens, k):
            return [tokens[-1]] * k

    @hookimpl
    def pilotfish_register_drafters(register):
        register("echo", Echo)
"""


def test_the_built_ins_register_like_any_plugin() -> None:
    registry = Registry.load()
    assert {"suffix", "oracle"} <= set(registry.drafters)
    assert registry.problems == []
    built_ins = {name: plugin.origin for plugin in registry.plugins for name in plugin.drafters + plugin.bridges}
    assert built_ins == dict.fromkeys(built_ins, "built-in")
    assert {"suffix", "oracle", "identity"} <= set(built_ins)


def test_the_built_ins_register_without_any_engine_library(monkeypatch: pytest.MonkeyPatch) -> None:
    for engine in ("llama_cpp", "mlx", "mlx_lm", "tinygrad"):
        monkeypatch.setitem(sys.modules, engine, None)
    for module in [name for name in sys.modules if name.startswith("pilotfish.plugins.")]:
        monkeypatch.delitem(sys.modules, module)
    registry = Registry.load()
    assert registry.problems == []
    assert "llama" in registry.verifiers


def test_ten_lines_in_a_folder_are_a_drafter(folder: Path) -> None:
    assert len([line for line in textwrap.dedent(TEN_LINES).splitlines() if line]) <= 10
    write(folder, "echo.py", TEN_LINES)
    drafter = load(folder).drafter("echo")
    assert drafter is not None
    session = drafter.open(fake_pin(), [1, 2, 3])
    session.commit([7])
    assert session.propose(3).tokens == (7, 7, 7)


class TestNames:
    def test_a_folder_plugin_does_not_shadow_a_built_in(self, folder: Path) -> None:
        path = write(
            folder,
            "mine.py",
            GOOD.format(name="suffix") + '        register("other", lambda config: Mine(config))\n',
        )
        registry = load(folder)
        suffix = registry.drafter("suffix")
        assert type(suffix).__module__ == "pilotfish.plugins.drafters.suffix"
        assert "other" in registry.drafters
        [problem] = registry.problems
        assert problem.plugin == str(path)
        assert "'suffix' is already registered by pilotfish.plugins.drafters.suffix" in problem.message

    def test_of_two_files_the_first_by_name_keeps_the_name(self, folder: Path) -> None:
        write(folder, "b.py", GOOD.format(name="twice"))
        write(folder, "a.py", GOOD.format(name="twice"))
        registry = load(folder)
        owners = [Path(plugin.name).name for plugin in registry.plugins if "twice" in plugin.drafters]
        assert owners == ["a.py"]
        assert Path(registry.problems[0].plugin).name == "b.py"

    def test_files_of_one_name_in_two_folders_are_two_plugins(self, tmp_path: Path) -> None:
        folders = [tmp_path / "one", tmp_path / "two"]
        for place in folders:
            place.mkdir(mode=0o700)
            write(place, "same.py", GOOD.format(name=place.name))
        registry = Registry.load(Config(plugins=Plugins(tuple(folders))))
        assert {"one", "two"} <= set(registry.drafters)

    def test_files_that_begin_with_an_underscore_are_not_plugins(self, folder: Path) -> None:
        write(folder, "_helper.py", "raise ValueError")
        write(folder, "notes.txt", "raise ValueError")
        registry = load(folder)
        assert names(registry) == []
        assert registry.problems == []


class TestBuilding:
    def test_a_drafter_is_built_once_with_its_own_table(self, folder: Path) -> None:
        write(folder, "mine.py", GOOD.format(name="mine"))
        registry = load(folder, mine={"depth": 3, "list": [1, 2]}, other={"depth": 4})
        drafter: Any = registry.drafter("mine")
        assert drafter.config["depth"] == 3
        assert list(drafter.config["list"]) == [1, 2]
        assert registry.drafter("mine") is drafter
        with pytest.raises(TypeError):
            drafter.config["depth"] = 5

    @pytest.mark.parametrize(
        ("factory", "message"),
        [
            ("def factory(config): raise OSError('no weights')", "no weights"),
            ("def factory(config): return None", "NoneType is not a Drafter"),
            ("def factory(config): return HistoryDrafter()", "its name is 'history'"),
        ],
    )
    def test_a_drafter_that_cannot_be_built_is_none_and_a_problem_once(
        self, folder: Path, factory: str, message: str
    ) -> None:
        text = f"""
            from pilotfish.hooks import HistoryDrafter, hookimpl
            {factory}
            @hookimpl
            def pilotfish_register_drafters(register): register("bad", factory)
        """
        write(folder, "bad.py", text)
        registry = load(folder)
        assert registry.drafter("bad") is None
        assert registry.drafter("bad") is None
        [problem] = registry.problems
        assert message in problem.message
        assert "'bad'" in problem.message

    @pytest.mark.parametrize(
        ("base", "says", "message"),
        [
            ("", "inline = True", "Old is not a Drafter: it has no `placement`; see pilotfish.hooks.protocols"),
            ("HistoryDrafter", "inline = True", "say placement = Placement.INLINE"),
            ("HistoryDrafter", 'placement = "inline"', "its `placement` is 'inline'; say one of Placement.INLINE"),
        ],
    )
    def test_a_drafter_that_does_not_say_where_it_computes_is_told_to(
        self, folder: Path, base: str, says: str, message: str
    ) -> None:
        text = f"""
            from pilotfish.hooks import HistoryDrafter, hookimpl
            class Old({base}):
                name = "old"
                {says}
                def __init__(self, config): pass
                def open(self, target, prompt): pass
            @hookimpl
            def pilotfish_register_drafters(register): register("old", Old)
        """
        write(folder, "old.py", text)
        registry = load(folder)
        assert registry.drafter("old") is None
        [problem] = registry.problems
        assert message in problem.message

    def test_a_bad_option_names_its_key(self, folder: Path) -> None:
        registry = load(folder, suffix={"min_match": 0})
        assert registry.drafter("suffix") is None
        assert "drafters.suffix.min_match" in registry.problems[0].message

    def test_an_unknown_name_is_a_problem_with_the_nearest_one(self) -> None:
        registry = Registry.load()
        assert registry.drafter("sufix") is None
        assert "did you mean 'suffix'?" in registry.problems[0].message

    def test_a_verifier_is_built_by_name(self, folder: Path) -> None:
        text = """
            from pilotfish.hooks import hookimpl
            class Fake:
                name = "fake"
                def __init__(self, config): pass
                def load(self, pin, lane, options): pass
            @hookimpl
            def pilotfish_register_verifiers(register): register("fake", Fake)
        """
        write(folder, "fake.py", text)
        registry = load(folder)
        assert isinstance(registry.verifier("fake"), Verifier)
        assert registry.verifier("none") is None

    def test_the_whole_config_is_there_to_read_while_registering(self, folder: Path) -> None:
        text = """
            from pilotfish.hooks import HistoryDrafter, hookimpl
            @hookimpl
            def pilotfish_register_drafters(register, config):
                assert config["speculation"]["max_width"] == 16
                class Mine(HistoryDrafter):
                    name = config["drafters"]["family"]["member"]
                register(Mine.name, Mine)
                config["speculation"]["max_width"] = 1
        """
        path = write(folder, "family.py", text)
        registry = load(folder, family={"member": "kid"})
        [problem] = registry.problems
        assert problem.where == f"{path}:8"  # it came as far as the line that tries to write
        assert "kid" not in registry.drafters


WORDS = FakeVocabulary(TokenizerPin("c" * 64, "gpt2", 3), [b"a", b"b", b"X"])
SAME_BUT_ONE = FakeVocabulary(TokenizerPin("d" * 64, "gpt2", 3), [b"a", b"b", b"Y"])
OTHER_WORDS = FakeVocabulary(TokenizerPin("e" * 64, "gpt2", 3), [b"aa", b"a", b"bb"])


class TestBridges:
    def test_equal_tokenizers_get_the_identity(self) -> None:
        found = Registry.load().bridge(OWN, OWN)
        assert found is not None
        assert found[0] == "identity"
        assert isinstance(found[1], Bridge)

    def test_nearly_equal_vocabularies_are_mapped_and_others_cut_anew(self) -> None:
        registry = Registry.load()
        pairs = [(WORDS, WORDS), (SAME_BUT_ONE, WORDS), (OTHER_WORDS, WORDS), (ByteVocabulary(), OTHER_WORDS)]
        found = [registry.bridge(drafter, target) for drafter, target in pairs]
        assert [one and one[0] for one in found] == ["identity", "vocab_map", "retokenize", "retokenize"]

    def test_a_faulty_bridge_is_skipped(self, folder: Path) -> None:
        text = """
            from pilotfish.hooks import hookimpl
            class Through:
                def to_drafter(self, ids): return ids
                def to_target(self, proposal): return proposal
            def broken(drafter, target): raise ValueError("no such map")
            @hookimpl
            def pilotfish_register_bridges(register):
                register("broken", broken)
                register("junk", lambda drafter, target: 5)
                register("through", lambda drafter, target: Through())
        """
        path = write(folder, "bridges.py", text)
        registry = load(folder)
        found = registry.bridge(OWN, OTHER)
        assert found is not None
        assert found[0] == "through"
        assert [problem.plugin for problem in registry.problems] == [str(path)] * 2
        assert registry.problems[0].where == f"{path}:5"

    def test_none_fits_means_none(self) -> None:
        assert Registry.load().bridge(OWN, OTHER) is None


class TestObservers:
    WATCHER = """
        from pilotfish.hooks import hookimpl
        seen = []
        @hookimpl
        def pilotfish_session_opened(session): seen.append(("opened", session.target.name)); {extra}
        @hookimpl
        def pilotfish_session_closed(session, report): seen.append(("closed", report.committed))
        @hookimpl
        def pilotfish_model_pinned(pin): seen.append(("pinned", pin.name))
        @hookimpl
        def pilotfish_choose_drafters(target, available): {choose}
    """

    def watchers(self, folder: Path, **choices: str) -> Registry:
        for name, choose in choices.items():
            extra = "raise ValueError('I do not like it')" if name == "faulty" else "pass"
            write(folder, f"{name}.py", self.WATCHER.format(extra=extra, choose=choose))
        return load(folder)

    def seen(self, name: str) -> Any:
        modules = [m for key, m in sys.modules.items() if key.startswith(f"pilotfish_plugin_{name}_")]
        return modules[-1].seen

    def test_every_observer_hears_it_though_one_raises(self, folder: Path) -> None:
        registry = self.watchers(folder, before="pass", faulty="pass", later="pass")
        session = SessionInfo(fake_pin(), Lane())
        for _ in range(3):
            registry.notify_opened(session)
        registry.notify_closed(session, SessionReport(committed=5))
        registry.notify_pinned(fake_pin())
        heard = [*[("opened", "fake:latest")] * 3, ("closed", 5), ("pinned", "fake:latest")]
        assert self.seen("before") == self.seen("later") == heard
        assert [Path(problem.plugin).name for problem in registry.problems] == ["faulty.py"]
        assert "faulty.py:4" in registry.problems[0].where

    def test_without_an_opinion_the_configured_order_stands(self, folder: Path) -> None:
        assert self.watchers(folder, quiet="return None").choose(fake_pin(), ["a", "b"]) == ("a", "b")

    def test_the_first_opinion_counts_and_only_available_names_do(self, folder: Path) -> None:
        registry = self.watchers(folder, picky="return ['b', 'nowhere', 'b', 'a']")
        assert registry.choose(fake_pin(), ["a", "b", "c"]) == ("b", "a")

    def test_an_empty_choice_means_no_drafter(self, folder: Path) -> None:
        assert self.watchers(folder, none="return []").choose(fake_pin(), ["a"]) == ()

    @pytest.mark.parametrize("bad", ["raise ValueError", "return 'suffix'", "return 5", "return [[]]"])
    def test_a_bad_opinion_is_ignored(self, folder: Path, bad: str) -> None:
        registry = self.watchers(folder, xbad=bad)
        assert registry.choose(fake_pin(), ["a"]) == ("a",)
        assert len(registry.problems) == 1


def test_a_plugin_with_all_its_attributes_shows_in_the_list(folder: Path) -> None:
    path = write(folder, "mine.py", GOOD.format(name="mine"))
    [info] = [plugin for plugin in load(folder).plugins if plugin.origin == "folder"]
    assert (info.name, info.where, info.drafters, info.bridges) == (str(path), str(path), ("mine",), ())
