"""What is declared of every architecture holds together, without an engine."""

from __future__ import annotations

import gguf
import pytest

from pilotfish.daemon.lab.tiny_models.architecture import VOCAB
from pilotfish.daemon.lab.tiny_models.catalogue import ARCHITECTURES, NOT_MADE, architectures
from pilotfish.daemon.lab.tiny_models.making import tensor_name
from pilotfish.hooks.errors import UsageError

ARCHITECTURE_NAMES = set(gguf.MODEL_ARCH_NAMES.values())
BLOCK = 256  # numbers, of the longest format
each = pytest.mark.parametrize("architecture", ARCHITECTURES, ids=lambda one: one.name)


@each
def test_it_is_one_that_gguf_knows_and_so_are_its_tensors(architecture):
    assert architecture.id in ARCHITECTURE_NAMES
    names = [tensor_name(name) for name in architecture.whole]
    names += [tensor_name(name, i) for i, layer in enumerate(architecture.layers) for name in layer]
    assert len(set(names)) == len(names)
    assert "token_embd.weight" in names


@each
def test_every_number_format_fits_the_rows_of_its_large_matrices(architecture):
    for tensors in (architecture.whole, *architecture.layers):
        for name, shape in tensors.items():
            if len(shape) > 1 and (shape[0] == VOCAB or shape[-2] >= BLOCK) and not name.startswith(SMALL):
                assert shape[-1] % BLOCK == 0 or shape[-1] == 128, f"{name} {shape}"


SMALL = ("SSM_CONV1D", "SHORTCONV_CONV", "LAUREL_R")  # narrow in the real models, too


def test_names_are_told_apart_and_nothing_is_both_made_and_not():
    names = [one.name for one in ARCHITECTURES]
    assert len(set(names)) == len(names)
    assert not {one.name for one in NOT_MADE} & set(names)
    assert all(one.reason for one in NOT_MADE)


def test_an_unknown_name_is_answered_with_the_choices():
    with pytest.raises(UsageError, match=r"no tiny model of gpt-9; there are llama, .*qwen35"):
        architectures(["gpt-9"])
    assert [one.name for one in architectures(["qwen35", "llama"])] == ["qwen35", "llama"]
