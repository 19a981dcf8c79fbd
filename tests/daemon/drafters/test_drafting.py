"""What drafters of a loaded target are handed."""

from __future__ import annotations

from typing import Any

from pilotfish.daemon.config.types import Config
from pilotfish.daemon.drafters.drafting import pool_for
from pilotfish.daemon.lab.fakes.fake_engine import FakeEngine, fake_pin
from pilotfish.hooks.types import EngineOptions, FarEnd
from tests.daemon.drafters.test_pool import SOON, Heavy, registry_of


class Noting(Heavy):
    """Remembers what it was asked with."""

    asked: tuple[EngineOptions, ...] = ()

    def footprint(self, host: Any, target: Any, options: EngineOptions) -> Any:
        self.asked = (*self.asked, options)
        return super().footprint(host, target, options)


def test_drafters_of_a_model_over_far_ends_compute_here_so_their_memory_is_this_machines(tmp_path):
    options = EngineOptions(n_ctx=64, slots=4, threads=3, far_ends=(FarEnd("10.0.0.2:50052"),), tensor_split=(1.0,))
    drafter, engine = Noting(), FakeEngine()
    pool = pool_for(engine, fake_pin(32), object(), options, Config(), before=0, state_dir=tmp_path)  # type: ignore[arg-type]  # no verifier is asked
    pool.use(registry_of(drafter), ["heavy"])
    assert pool.settle(SOON)
    pool.close()
    assert {(asked.far_ends, asked.tensor_split, asked.threads) for asked in drafter.asked} == {((), (), 3)}
