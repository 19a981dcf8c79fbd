"""The tokenizer of an MLX model: the one among its layers, as an engine's."""

from __future__ import annotations

from pilotfish.hooks.errors import RequestError
from pilotfish.hooks.types import TokenizerPin
from pilotfish.manifests.tensor_layers import TensorLayers
from pilotfish.plugins._vocabularies import FileTokenizer, layers_vocabulary

_ENDS = ("generation_config.json", "config.json")  # which say where a generation ends


class MLXTokenizer(FileTokenizer):
    """An `EngineTokenizer`. Ids beyond the file's, up to the `n_vocab` rows that the model has, stand for nothing.

    Raises ModelNotFound, EngineError or BrokenModel.
    """

    def __init__(self, layers: TensorLayers, n_vocab: int) -> None:
        super().__init__(layers_vocabulary(layers))
        self.n_vocab = n_vocab
        self._ends = _end_ids(layers, self.vocabulary.pin, n_vocab)

    def piece(self, token: int, *, special: bool = False) -> bytes:
        """The bytes `token` stands for; control tokens are empty unless `special`. Raises RequestError."""
        if not 0 <= token < self.n_vocab:
            raise RequestError(f"token id {token} is outside the vocabulary of {self.n_vocab} tokens")
        return super().piece(token, special=special) if token < self.vocabulary.pin.n_vocab else b""

    def end_tokens(self) -> frozenset[int]:
        """Every id that ends a generation, as the model's files say."""
        return self._ends

    def close(self) -> None:
        """Nothing to do: it knows no model."""


def _end_ids(layers: TensorLayers, said: TokenizerPin, n_vocab: int) -> frozenset[int]:
    found = [said.eos]
    for name in _ENDS:
        table = layers.json(name) if layers.file(name) else {}
        nested = table.get("text_config")
        for place in (table, nested if isinstance(nested, dict) else {}):
            ids = place.get("eos_token_id")
            found += ids if isinstance(ids, list) else [ids]
    return frozenset(token for token in found if type(token) is int and 0 <= token < n_vocab)
