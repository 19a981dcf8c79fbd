"""How much memory an MLX model takes, and how long it was trained for, from its config.json."""

from __future__ import annotations

from dataclasses import dataclass

from pilotfish.hooks.types import EngineOptions, Footprint, TargetPin
from pilotfish.manifests.tensor_layers import TensorLayers
from pilotfish.manifests.tensor_words import number_in

_WORK = 4  # rows of a block's activations and of its scores that are there at once
_BITS = 17  # of a number in a cache, half a bit of scales among them, where nothing else is said


@dataclass(frozen=True, slots=True)
class ModelSizes:
    """What counts, layer by layer alike: an upper bound where some layers keep less."""

    layers: int
    heads: int
    kv_heads: int
    head: int
    hidden: int
    n_vocab: int
    trained: int  # tokens; 0 where nothing is said
    experts: int

    @classmethod
    def of(cls, layers: TensorLayers) -> ModelSizes:
        """Raises BrokenModel."""
        config = layers.json("config.json")
        heads = number_in(config, "num_attention_heads", 1)
        hidden = number_in(config, "hidden_size")
        return cls(
            layers=number_in(config, "num_hidden_layers"),
            heads=heads,
            kv_heads=number_in(config, "num_key_value_heads", heads),
            head=number_in(config, "head_dim", hidden // heads),
            hidden=hidden,
            n_vocab=number_in(config, "vocab_size"),
            trained=number_in(config, "max_position_embeddings"),
            experts=max(number_in(config, key) for key in ("num_experts", "num_local_experts", "n_routed_experts")),
        )


def footprint_of(pin: TargetPin, sizes: ModelSizes, options: EngineOptions, *, widened: bool) -> Footprint:
    """Bytes of the system's memory, which an accelerator of MLX's shares.

    `widened`: plain weights, and cells with them, are held as floats of twice the bits.
    """
    weights = sum(weight.size for weight in pin.weights)
    bits = _BITS * (2 if widened else 1)
    cells = 2 * sizes.layers * sizes.kv_heads * sizes.head * options.n_ctx * bits // 8
    block = options.batch_size * (_WORK * sizes.hidden + sizes.heads * options.n_ctx) * _WORK
    return Footprint(weights * (2 if widened else 1), options.slots * cells + block + 4 * sizes.n_vocab)
