"""What a drafter must do that has something to load: `footprint`, `load` and `unload`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pilotfish.daemon.lab.conformance.drafter_checks import Check
from pilotfish.daemon.lab.conformance.harness import Harness, Nonconformance, supervised
from pilotfish.hooks.protocols import Host, LoadableDrafter, Vocabulary
from pilotfish.hooks.types import EngineOptions, Footprint

LOADING_SECONDS = 600.0  # weights may be far away, and kernels may have to be compiled


@dataclass(frozen=True, slots=True)
class Loading:
    """A drafter with what it is loaded with."""

    drafter: LoadableDrafter
    host: Host
    options: EngineOptions

    @property
    def check(self) -> Check:
        """What comes before every other check."""
        demand = "It says how much memory it will need, if any, and gets ready for sessions."
        return Check("loads", demand, self.load)

    @property
    def last_check(self) -> Check:
        """What comes after every other check; the drafter is unloaded at the end."""
        demand = "It can be unloaded, more than once, and loaded again."
        return Check("unloads and loads again", demand, self._load_again)

    def load(self, harness: Harness) -> None:
        given = (self.host, harness.target, self.options)
        with supervised(harness.watch, "footprint", "footprint(host, target, options)"):
            footprint = self.drafter.footprint(*given)
        if not (footprint is None or isinstance(footprint, Footprint)):
            raise Nonconformance(f"footprint returned a {type(footprint).__name__}; return a Footprint, or None")
        if footprint is not None and min(footprint.weights, footprint.cache) < 0:
            raise Nonconformance(f"footprint returned {footprint}; neither figure can be negative")
        with supervised(harness.watch, "load", "load(host, target, options)", LOADING_SECONDS):
            self.drafter.load(*given)
        vocabulary = self.drafter.vocabulary
        if not (vocabulary is None or isinstance(vocabulary, Vocabulary)):
            raise Nonconformance(
                f"after load its vocabulary is a {type(vocabulary).__name__}; set a Vocabulary, or None when it speaks "
                "the target's own ids"
            )

    def unload(self, harness: Harness) -> None:
        with supervised(harness.watch, "unload", "unload()", LOADING_SECONDS):
            self.drafter.unload()

    def _load_again(self, harness: Harness) -> None:
        steps: tuple[Callable[[Harness], None], ...] = (self.unload, self.unload, self.load, _one_proposal, self.unload)
        for step in steps:
            step(harness)


def _one_proposal(harness: Harness) -> None:
    with harness.session() as session:
        session.propose(4)
        session.rollback()
