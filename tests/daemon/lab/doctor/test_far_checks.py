"""What the doctor says of machines that compute layers."""

from __future__ import annotations

from pilotfish.daemon.config.types import Config, Engine
from pilotfish.daemon.farends.looking import FarEndSeen
from pilotfish.daemon.farends.rpc_protocol import DeviceSeen
from pilotfish.daemon.lab.doctor import surroundings as looked
from pilotfish.daemon.lab.doctor.examination import examine
from pilotfish.daemon.lab.doctor.far_checks import far_findings
from pilotfish.daemon.lab.doctor.finding import Level
from tests.daemon.lab.doctor.examined import ENGINES, GIB, surroundings
from tests.fakes.rpc_servers import far_end, own

HOME = "127.0.0.1:50052"


def far(endpoint=HOME, address=None, **changes):
    """One that is well, computes with this machine's libraries and is reached through a tunnel."""
    well = {
        "pin": "libraries aaaaaaaaaaaa, A processor, 2 threads",
        "fingerprint": ENGINES["llama"],
        "devices": (DeviceSeen(3 * GIB, 4 * GIB),),
        "protocol": "7.0.0",
    }
    return FarEndSeen(endpoint, endpoint if address is None else address, **{**well, **changes})


def told(*seen, held=()):
    return list(far_findings(surroundings(far_ends=seen, far_held=held)))


def test_without_far_ends_there_is_nothing_to_say():
    assert told() == []


def test_one_that_is_well_is_told_with_its_memory():
    (found,) = told(far())
    assert (found.level, found.what) == (Level.NOTE, "free there: 127.0.0.1:50052 3.2 GB of 4.3 GB")


def test_memory_of_several_is_summed():
    found = told(far(), far("127.0.0.1:50053", devices=(DeviceSeen(GIB, GIB), DeviceSeen(GIB, 2 * GIB))))
    assert found[0].what.endswith("127.0.0.1:50053 2.1 GB of 3.2 GB; together 5.4 GB")


def test_what_is_in_the_way_is_a_problem():
    (found,) = told(far(trouble="127.0.0.1:50052 refuses connections", protocol="", fingerprint="", devices=()))
    assert (found.level, found.what) == (Level.PROBLEM, "127.0.0.1:50052 refuses connections")


def test_one_that_serves_another_machine_may_be_free_soon_and_one_that_serves_this_one_is_well():
    busy = far(busy="10.0.0.9:40000", trouble="127.0.0.1:50052 serves 10.0.0.9:40000")
    assert [found.level for found in told(busy)] == [Level.WARNING, Level.NOTE]
    mine = told(busy, held=[HOME])
    assert [found.level for found in mine] == [Level.NOTE, Level.NOTE]
    assert "for a process of this machine" in mine[0].what


def test_other_libraries_are_allowed_and_told():
    (found, _) = told(far(fingerprint="c" * 64))
    assert found.level == Level.NOTE
    assert "other libraries (cccccccccccc) than this machine (aaaaaaaaaaaa)" in found.what


def test_one_that_does_not_tell_its_libraries_is_a_risk_to_certificates():
    (found, _) = told(far(fingerprint=""))
    assert (found.level, found.what) == (
        Level.WARNING,
        "127.0.0.1:50052 tells its protocol (7.0.0) and not its libraries",
    )


def test_a_network_is_warned_of_with_the_tunnel_that_avoids_it():
    for endpoint, address in (("big-box:5000", "10.0.0.2:5000"), ("big-box:5000", ""), ("10.0.0.2:5000", "")):
        (found, _) = told(far(endpoint, address))
        assert (found.level, found.what) == (Level.WARNING, f"{endpoint} is reached over a network")
        assert found.remedy.endswith(f"ssh -N -L 5000:127.0.0.1:5000 {endpoint.partition(':')[0]}")
    assert len(told(far("here:5000", "127.0.0.1:5000"))) == 1
    assert len(told(far("localhost:5000", ""))) == 1


def test_far_ends_are_part_of_the_examination():
    assert [found.about for found in examine(surroundings(far_ends=(far(),)))] == ["far ends"]


def test_those_that_the_config_names_are_looked_at():
    with far_end(own()) as endpoint:
        (seen,) = looked._far_ends(Config(engine=Engine(rpc=(endpoint,))), None)
    assert (seen.endpoint, bool(seen.pin)) == (endpoint, True)
    assert looked._far_ends(Config(), "smollm2:135m") == ()


def test_their_memory_counts_for_the_models_that_are_split_over_them():
    around = surroundings(far_ends=(far(),), config=Config(engine=Engine(rpc=(HOME,))))
    assert around.far_free("smollm2:135m") == 3 * GIB
    assert surroundings(far_ends=(far(),)).far_free("smollm2:135m") == 0
