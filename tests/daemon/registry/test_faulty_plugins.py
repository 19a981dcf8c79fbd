"""Plugins that raise, wherever and whatever: they are left out, and their host goes on."""

from __future__ import annotations

import logging
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pilotfish.lab.fakes import fake_pin
from tests.daemon.registry.registries import OTHER, OWN, load, names
from tests.fakes.plugin_files import GOOD, write

FAULTS = {
    "on import": ("import no_such_module_anywhere", 1),
    "by its syntax": ("x = 1\ndef f(:\n    pass", 2),
    "by leaving": ("import sys\nsys.exit(3)", 2),
    "by being cancelled": ("import asyncio\nraise asyncio.CancelledError", 2),
    "by a native extension's panic": ("class Panic(BaseException): pass\nraise Panic('index out of bounds')", 2),
    "by an error whose text raises": (
        "class Odd(Exception):\n    def __str__(self): raise SystemExit\nraise Odd",
        3,
    ),
    "after registering a drafter": (
        GOOD.format(name="half") + "        raise RuntimeError('changed my mind')\n",
        9,
    ),
    "in another hook, after registering a drafter": (
        GOOD.format(name="half")
        + """
    @hookimpl
    def pilotfish_register_bridges(register):
        register("half", lambda a, b: None)
        raise KeyError("no")
""",
        13,
    ),
    "by an argument the hook does not have": (
        "from pilotfish.hooks import hookimpl\n\n@hookimpl\ndef pilotfish_register_drafters(registry): pass",
        None,
    ),
    "by a hook that does not exist": (
        GOOD.format(name="half") + "\n    @hookimpl\n    def pilotfish_sesion_opened(session):\n        pass\n",
        None,
    ),
    "by a factory that is none": (
        "from pilotfish.hooks import hookimpl\n@hookimpl\ndef pilotfish_register_drafters(register):\n"
        "    register('half', 5)",
        4,
    ),
    "by one name for two drafters": (GOOD.format(name="half") + "        register('half', Mine)\n", 9),
}


class TestAFaultyPluginIsLeftOutWhole:
    @pytest.mark.parametrize(("text", "line"), FAULTS.values(), ids=FAULTS)
    def test_and_the_rest_goes_on(
        self, folder: Path, caplog: pytest.LogCaptureFixture, text: str, line: int | None
    ) -> None:
        write(folder, "a_before.py", GOOD.format(name="before"))
        faulty = write(folder, "b_faulty.py", text)
        write(folder, "c_after.py", GOOD.format(name="after"))
        with caplog.at_level(logging.WARNING, "pilotfish.registry"):
            registry = load(folder)
        assert names(registry) == ["a_before.py", "c_after.py"]
        assert {"before", "after", "suffix"} <= set(registry.drafters)
        assert "half" not in registry.drafters
        assert registry.bridge(OWN, OTHER) is None
        [problem] = registry.problems
        assert problem.plugin == str(faulty)
        assert problem.where == (f"{faulty}:{line}" if line else str(faulty))
        assert str(faulty) in caplog.text
        assert not line or f"{faulty}:{line}" in caplog.text

    def test_a_failed_import_leaves_no_module_behind(self, folder: Path) -> None:
        before = set(sys.modules)
        write(folder, "faulty.py", "import pilotfish.hooks\nraise ValueError")
        load(folder)
        assert {name for name in set(sys.modules) - before if "faulty" in name} == set()

    def test_one_that_registers_late_is_told_so(self, folder: Path) -> None:
        write(folder, "late.py", GOOD.format(name="early") + "        global later\n        later = register\n")
        registry = load(folder)
        module = next(m for name, m in sys.modules.items() if name.startswith("pilotfish_plugin_late_"))
        with pytest.raises(Exception, match="inside the hook"):
            module.later("late", object)
        assert "late" not in registry.drafters


# What is no Exception and comes out of plugins all the same.
RAISED = ["SystemExit(3)", "__import__('asyncio').CancelledError()", "BaseException('panic')", "GeneratorExit()"]


class TestWhateverIsRaised:
    """No exception that a plugin chooses to raise ends its host."""

    @pytest.mark.parametrize("raised", RAISED)
    def test_by_a_factory_is_a_problem(self, folder: Path, raised: str) -> None:
        text = f"""
            from pilotfish.hooks import hookimpl
            @hookimpl
            def pilotfish_register_drafters(register): register("mine", leave)
            def leave(*args): raise {raised}
        """
        write(folder, "mine.py", text)
        registry = load(folder)
        assert registry.drafter("mine") is None
        assert "'mine' not available" in registry.problems[0].message

    @pytest.mark.parametrize("raised", RAISED)
    def test_by_a_bridge_and_by_every_hook_is_a_problem(self, folder: Path, raised: str) -> None:
        text = f"""
            from pilotfish.hooks import hookimpl
            @hookimpl
            def pilotfish_register_bridges(register): register("leaving", leave)
            @hookimpl
            def pilotfish_model_pinned(pin): leave()
            @hookimpl
            def pilotfish_choose_drafters(target, available): leave()
            def leave(*args): raise {raised}
        """
        write(folder, "mine.py", text)
        registry = load(folder)
        assert registry.bridge(OWN, OTHER) is None
        registry.notify_pinned(fake_pin())
        assert registry.choose(fake_pin(), ["a"]) == ("a",)
        assert len(registry.problems) == 3

    def test_a_keyboard_interrupt_off_the_main_thread_is_the_plugins(self, folder: Path) -> None:
        write(folder, "mine.py", "raise KeyboardInterrupt")
        with ThreadPoolExecutor() as pool:
            registry = pool.submit(load, folder).result()
        assert "KeyboardInterrupt" in registry.problems[0].message

    def test_the_users_own_interrupt_gets_through(self, folder: Path) -> None:
        write(folder, "mine.py", "raise KeyboardInterrupt")  # as Python itself raises it for a Ctrl-C
        with pytest.raises(KeyboardInterrupt):
            load(folder)
