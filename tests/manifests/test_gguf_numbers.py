"""The numbers of the format are those of the `gguf` package, in whatever order the two are imported."""

from __future__ import annotations

import subprocess
import sys

import pytest

OURS, PACKAGE = "from pilotfish.manifests import gguf_numbers", "import gguf"


@pytest.mark.parametrize("order", [(OURS, PACKAGE), (PACKAGE, OURS)])
def test_there_is_one_copy_of_the_enums(order):
    code = "; ".join([*order, "print(gguf.GGUFValueType is gguf_numbers.GGUFValueType)"])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "True", done.stderr


@pytest.mark.parametrize("order", [(OURS, PACKAGE), (PACKAGE, OURS)])
def test_the_package_is_whole(order):
    code = "; ".join([*order, "print(gguf.constants.GGUFValueType is gguf_numbers.GGUFValueType)"])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "True", done.stderr


def test_the_package_is_not_imported_for_them():
    code = f"{OURS}; import sys; print('gguf' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
