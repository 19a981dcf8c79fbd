"""What a plugin must do, as checks that need no test framework and no model: the content of `pilotfish conformance`.

A check is a function that is handed a harness with a drafter on it. It returns when the drafter does what the check
demands, and raises Nonconformance, which says what was seen and what to do, when it does not.
"""

from pilotfish.daemon.lab.conformance.drafter_checks import CHECKS, Check
from pilotfish.daemon.lab.conformance.harness import Harness, Nonconformance, made_up_target
from pilotfish.daemon.lab.conformance.patience import CallWatch
from pilotfish.daemon.lab.conformance.report import CheckResult, PluginReport, Verdict

__all__ = [
    "CHECKS",
    "CallWatch",
    "Check",
    "CheckResult",
    "Harness",
    "Nonconformance",
    "PluginReport",
    "Verdict",
    "made_up_target",
]
