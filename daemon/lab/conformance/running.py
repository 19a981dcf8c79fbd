"""Runs one check, whatever the plugin does, and says what came of it."""

from __future__ import annotations

from collections.abc import Callable

from pilotfish.daemon.lab.conformance.harness import Nonconformance
from pilotfish.daemon.lab.conformance.patience import CallWatch, Hangs
from pilotfish.daemon.lab.conformance.report import FAILED, NOT_RUN, CheckResult
from pilotfish.daemon.registry.plugin_trouble import describe


def run_check(name: str, demand: str, job: Callable[[], None], watch: CallWatch) -> CheckResult:
    """The result of `job`, which is run unless an earlier call on `watch` was given up."""
    if watch.given_up:
        return CheckResult(name, demand, NOT_RUN, "an earlier call did not return")
    try:
        watch.run(job)
    except (Nonconformance, Hangs) as error:
        return CheckResult(name, demand, FAILED, str(error))
    except Exception as error:  # an object so odd that it broke the check itself
        return CheckResult(name, demand, FAILED, f"{describe(error)}; see pilotfish.hooks.protocols")
    return CheckResult(name, demand)
