"""What bounds a process's memory: control groups of both versions, its address space, devices."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from pilotfish.daemon.drafters import memory_bounds
from pilotfish.daemon.drafters.memory_bounds import Bound, bounds_for, control_groups, private_bytes, system
from pilotfish.hooks.types import DeviceMemory

MIB = 1 << 20
HOST = "the memory limit of control group /"


def group(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)


def groups(tmp_path: Path, own: str) -> list[Bound]:
    table = tmp_path / "cgroup"
    table.write_text(own)
    return list(control_groups(True, tmp_path / "fs", table))


def test_version_2_counts_cached_files_as_available(tmp_path: Path) -> None:
    group(
        tmp_path / "fs/user/app",
        memory__max=f"{1000 * MIB}\n",
        memory__current=f"{700 * MIB}\n",
        memory__stat=f"anon {300 * MIB}\ninactive_file {250 * MIB}\nactive_file {150 * MIB}\nslab 9\n",
    )
    group(tmp_path / "fs/user", memory__max="max\n", memory__current=f"{900 * MIB}\n")
    found = groups(tmp_path, "0::/user/app\n")
    assert found == [Bound(f"{HOST}user/app", 700 * MIB, 1000 * MIB, lends=True)]


def test_the_limit_of_a_group_around_it_counts_too(tmp_path: Path) -> None:
    group(tmp_path / "fs/user/app", memory__max="max\n", memory__current="5\n")
    group(tmp_path / "fs/user", memory__max=f"{500 * MIB}\n", memory__high="max\n", memory__current=f"{100 * MIB}\n")
    assert groups(tmp_path, "0::/user/app\n") == [Bound(f"{HOST}user", 400 * MIB, 500 * MIB, lends=True)]


def test_a_soft_limit_below_the_hard_one_counts(tmp_path: Path) -> None:
    group(tmp_path / "fs/a", memory__max=f"{500 * MIB}\n", memory__high=f"{300 * MIB}\n", memory__current="0\n")
    assert [bound.total for bound in groups(tmp_path, "0::/a\n")] == [300 * MIB]


def test_version_1_has_its_own_file_names_and_a_number_for_no_limit(tmp_path: Path) -> None:
    group(
        tmp_path / "fs/memory/docker/1f",
        memory__limit_in_bytes=f"{800 * MIB}\n",
        memory__usage_in_bytes=f"{500 * MIB}\n",
        memory__stat=f"cache 1\ntotal_inactive_file {100 * MIB}\ntotal_active_file {MIB}\ninactive_file 7\n",
    )
    group(tmp_path / "fs/memory", memory__limit_in_bytes="9223372036854771712\n", memory__usage_in_bytes="1\n")
    found = groups(tmp_path, "5:cpu,cpuacct:/docker/1f\n4:memory:/docker/1f\n0::/\n")
    assert found == [Bound(f"{HOST}docker/1f", 401 * MIB, 800 * MIB, lends=True)]


def test_in_a_container_the_mounted_root_is_its_own_group(tmp_path: Path) -> None:
    group(tmp_path / "fs/memory", memory__limit_in_bytes=f"{64 * MIB}\n", memory__usage_in_bytes="0\n")
    assert [bound.available for bound in groups(tmp_path, "4:memory:/docker/1f\n")] == [64 * MIB]


def test_a_group_used_beyond_its_limit_has_nothing_left(tmp_path: Path) -> None:
    group(tmp_path / "fs/a", memory__max=f"{5 * MIB}\n", memory__current=f"{9 * MIB}\n")
    assert [bound.available for bound in groups(tmp_path, "0::/a\n")] == [0]


@pytest.mark.parametrize("own", ["", "0::/gone\n", "0::/../../other\n"])
def test_groups_that_cannot_be_seen_say_nothing(tmp_path: Path, own: str) -> None:
    assert groups(tmp_path, own) == []


def test_without_control_groups_there_is_no_such_bound(tmp_path: Path) -> None:
    assert list(control_groups(True, tmp_path, tmp_path / "missing")) == []


def test_the_system_is_a_bound_of_its_own_memory() -> None:
    found = system()
    assert found.total == psutil.virtual_memory().total
    assert 0 < found.available <= found.total
    assert "the system's memory" in [bound.what for bound in bounds_for("cpu")]


def figures(device: str) -> DeviceMemory | None:
    return {"CUDA0": DeviceMemory(5, 8, False), "Vulkan0": DeviceMemory(6, 9, True)}.get(device)


def test_an_accelerators_own_memory_is_its_only_bound() -> None:
    assert bounds_for("CUDA0", "CUDA0", figures) == [Bound("the memory of CUDA0", 5, 8, lends=False)]


def test_a_device_that_shares_the_systems_memory_is_bound_by_both() -> None:
    own, *others = bounds_for("Vulkan0", "Vulkan0", figures)
    assert own == Bound("the memory of Vulkan0", 6, 9, lends=False)
    assert others[0].what == "the system's memory"
    assert others[0].lends


def test_metal_is_the_systems_memory_whoever_is_asked() -> None:
    assert next(bound.what for bound in bounds_for("Metal")) == "the system's memory"


def test_of_a_device_that_nobody_knows_nothing_is_said() -> None:
    assert bounds_for("NV", "cpu", figures) == []


def test_a_target_on_a_device_of_its_own_claims_nothing_of_the_system() -> None:
    assert not bounds_for("cpu", "CUDA0", figures)[0].lends
    assert bounds_for("cpu", "cpu", figures)[0].lends
    assert bounds_for("cpu", "Metal", figures)[0].lends


TOUCHING = """
from pilotfish.daemon.drafters.memory_bounds import private_bytes
before = private_bytes()
held = bytearray(64 << 20)
print(private_bytes() - before)
"""


def test_private_memory_grows_with_what_is_touched() -> None:
    """In a process of its own: in this one, what earlier tests used is given back at any time."""
    grown = subprocess.run([sys.executable, "-c", TOUCHING], stdout=subprocess.PIPE, check=True, text=True).stdout
    assert int(grown) >= 60 * MIB


def test_without_a_shared_figure_the_unique_set_is_private(monkeypatch: pytest.MonkeyPatch) -> None:
    class Process:
        def memory_info(self) -> object:
            return type("info", (), {"rss": 900})()

        def memory_full_info(self) -> object:
            return type("info", (), {"uss": 700})()

    monkeypatch.setattr(memory_bounds.psutil, "Process", Process)
    assert private_bytes() == 700
