"""SmolLM2's vocabulary, from its GGUF and from the tokenizer.json of an MLX model: one and the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pilotfish.daemon.lab.mlx_models.gguf_as_mlx import json_layers
from pilotfish.daemon.lab.tiny_models.vocabulary import read_vocabulary
from pilotfish.hooks.errors import ModelNotFound
from pilotfish.manifests.names import ModelName
from pilotfish.manifests.pins import pin_file
from pilotfish.manifests.store import Store
from pilotfish.manifests.tensor_layers import TensorLayers
from pilotfish.manifests.tensor_writer import NewTensor, add_json, add_tensors, write_tensor_model
from pilotfish.plugins._vocabularies import FileTokenizer, layers_vocabulary
from pilotfish.plugins.bridges import identity
from pilotfish.plugins.drafters._gguf_vocabulary import GGUFVocabulary
from tests.manifests.builders import smollm2_path

TEXTS = ["Hello, world 2024!", " two  spaces", "naïve 東京 😊\n\n\ttab", "<|im_start|>user\n", ""]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def layers(store: Store) -> TensorLayers:
    """A model of one tensor with SmolLM2's files."""
    vocabulary = read_vocabulary(smollm2_path())
    weights = add_tensors(store.root, "a", [NewTensor.of("a", np.zeros(2, np.float16))])
    files = json_layers(store.root, {"model_type": "llama", "vocab_size": vocabulary.size}, vocabulary)
    write_tensor_model(store.root, ModelName.parse("converted"), [weights, *files])
    return TensorLayers.of(store.manifest("converted"), store)


def test_the_two_pair_by_identity(layers: TensorLayers) -> None:
    ours, theirs = layers_vocabulary(layers), GGUFVocabulary(pin_file(smollm2_path()))
    assert ours.pin == theirs.pin
    assert isinstance(identity.open_bridge(theirs, ours), identity.IdentityBridge)


@pytest.mark.model
def test_ids_and_pieces_are_libllamas(layers: TensorLayers) -> None:
    ours, theirs = layers_vocabulary(layers), GGUFVocabulary(pin_file(smollm2_path()))
    assert [ours.encode(text) for text in TEXTS] == [theirs.encode(text) for text in TEXTS]
    ids = [*range(40), *range(1000, 49152, 997)]
    assert [(ours.piece(i), ours.special(i)) for i in ids] == [(theirs.piece(i), theirs.special(i)) for i in ids]
    assert FileTokenizer(ours).encode("<|im_start|>user")[0] == 1


def test_a_model_without_a_tokenizer_says_so(store: Store) -> None:
    made = [add_tensors(store.root, "a", [NewTensor.of("a", np.zeros(2, np.float16))]), add_json(store.root, "x", {})]
    path = write_tensor_model(store.root, ModelName.parse("bare"), made)
    assert Path(path).is_file()
    with pytest.raises(ModelNotFound, match=r"bare:latest holds no tokenizer\.json"):
        layers_vocabulary(TensorLayers.of(store.manifest("bare"), store))
