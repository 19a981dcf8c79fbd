"""`[engine]` of a config that changes under a running runner: what holds at once, and what waits for the next load."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

from pilotfish.daemon.certify.idle_certifier import IdleCertifier
from pilotfish.daemon.config.types import Engine
from pilotfish.daemon.runner.lifetime import follow_engine

ANNOTATED = Path(__file__).resolve().parents[3] / "etc" / "pilotfish.toml"


class FakeSidecar:
    idle_seconds = 0.0

    def idle_after(self, seconds: float) -> None:
        self.idle_seconds = seconds


def test_the_idle_times_hold_at_once():
    sidecar, certifier = FakeSidecar(), IdleCertifier("job\n", lambda: False)
    follow_engine(sidecar, certifier, Engine(sidecar_idle_s=7, certify_idle_s=9))
    assert (sidecar.idle_seconds, certifier.idle_seconds) == (7, 9)


def test_a_runner_with_neither_has_nothing_to_follow():
    follow_engine(None, None, Engine())


def test_the_annotated_config_says_of_every_other_key_that_it_waits_for_a_load():
    section = ANNOTATED.read_text(encoding="utf-8").partition("[engine]\n")[2].partition("\n[")[0]
    said = dict(re.findall(r"^(\w+) = (.*(?:\n +#.*)*)", section, re.MULTILINE))
    assert set(said) == {field.name for field in fields(Engine)}
    waiting = {key for key, text in said.items() if "next load" in re.sub(r"\s+#?\s*", " ", text)}
    of_cells = {"prompts", "cache_ram_share", "cache_disk_mib"}
    of_far_ends = {"rpc", "tensor_split", "rpc_deadline_s", "rpc_fallback"}
    assert waiting == {"choice", "libllama", "kernels", "certify_budget_s", *of_cells, *of_far_ends}
