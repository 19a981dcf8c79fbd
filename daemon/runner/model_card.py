"""What a runner says about itself: `/props`, `/v1/models`, `/slots`."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pilotfish
from pilotfish.daemon.chat.chat_template import KEEPS_THOUGHTS, ChatTemplate
from pilotfish.daemon.core.generation import GenerationRequest
from pilotfish.daemon.runner.projector import TEXT_ONLY, Projector
from pilotfish.daemon.runner.wire.generation_settings import sampling_json
from pilotfish.daemon.runner.wire.sampling_options import RANDOM_SEED
from pilotfish.hooks.types import Lane, SamplingParams


@dataclass(frozen=True, slots=True)
class ModelCard:
    """The loaded model. Counts are tokens, parameters or bytes; zeros where the file does not say."""

    name: str  # what the launch calls it
    path: str
    template: ChatTemplate
    n_ctx: int
    n_vocab: int
    lane: Lane
    adds_bos: bool = False  # prompts begin with a token that the tokenizer adds
    slots: int = 1
    vocab_type: int = 0
    n_ctx_train: int = 0
    n_embd: int = 0
    n_params: int = 0
    size: int = 0
    quantization: str = ""
    projector: Projector = TEXT_ONLY  # what it takes besides text
    certification: str = ""  # the job that would certify the model; empty when it is certified or cannot be


def models_json(card: ModelCard) -> dict[str, Any]:
    """`/v1/models`, with the second list that Ollama-like clients of llama-server read."""
    listed = {
        "name": card.name,
        "model": card.name,
        "modified_at": "",
        "size": "",
        "digest": "",
        "type": "model",
        "description": "",
        "tags": [""],
        "capabilities": ["completion", *(["multimodal"] if card.projector.marker else [])],
        "parameters": "",
        "details": {
            "parent_model": "",
            "format": "gguf",
            "family": "",
            "families": [""],
            "parameter_size": "",
            "quantization_level": "",
        },
    }
    return {"models": [listed], "object": "list", "data": [_model(card)]}


def _model(card: ModelCard) -> dict[str, Any]:
    return {
        "id": card.name,
        "aliases": [card.name],
        "tags": [],
        "object": "model",
        "architecture": {"input_modalities": card.projector.modalities, "output_modalities": ["text"]},
        "created": int(time.time()),
        "owned_by": "pilotfish",
        "meta": {
            "vocab_type": card.vocab_type,
            "n_vocab": card.n_vocab,
            "n_ctx": card.n_ctx,
            "n_ctx_train": card.n_ctx_train,
            "n_embd": card.n_embd,
            "n_params": card.n_params,
            "size": card.size,
            "ftype": card.quantization,
        },
    }


def props_json(card: ModelCard) -> dict[str, Any]:
    """`/props`, and the lane under pilotfish's own key. Blocks, as templates do."""
    return {
        "default_generation_settings": {"params": _defaults(), "n_ctx": card.n_ctx},
        "total_slots": card.slots,
        "model_alias": card.name,
        "model_ftype": card.quantization,
        "model_path": card.path,
        "modalities": {"vision": card.projector.vision, "video": False, "audio": card.projector.audio},
        "media_marker": card.projector.marker,
        "endpoint_slots": True,
        "endpoint_props": False,
        "endpoint_metrics": True,
        "ui": False,
        "ui_settings": {},
        "chat_template": card.template.source,
        "chat_template_caps": _capabilities(card.template),
        "bos_token": card.template.bos,
        "eos_token": card.template.eos,
        "build_info": f"pilotfish-{pilotfish.__version__}",
        "is_sleeping": False,
        "cors_proxy_enabled": False,
        "pilotfish": {
            "version": pilotfish.__version__,
            "lane": card.lane.name,
            "widths": card.lane.widths,
            "parity": card.lane.parity,
            "reason": card.lane.reason,
        },
    }


def slots_json(card: ModelCard, running: Mapping[int, GenerationRequest]) -> list[dict[str, Any]]:
    """`/slots`: every slot and what it is busy with."""
    return [_slot(card, slot, running.get(slot)) for slot in range(card.slots)]


def _slot(card: ModelCard, slot: int, request: GenerationRequest | None) -> dict[str, Any]:
    table: dict[str, Any] = {
        "id": slot,
        "n_ctx": card.n_ctx,
        "speculative": card.lane.max_width > 1,
        "is_processing": request is not None,
    }
    if request is not None:
        table |= {"n_prompt_tokens": len(request.prompt), "params": sampling_json(request.sampling)}
    return table


def _defaults() -> dict[str, Any]:
    return sampling_json(SamplingParams(seed=RANDOM_SEED))


def _capabilities(template: ChatTemplate) -> dict[str, bool]:
    """What the template can show, under llama-server's names."""
    traits, source = template.traits, template.source
    return {
        "supports_object_arguments": traits.object_arguments,
        "supports_parallel_tool_calls": traits.parallel_calls,
        "supports_preserve_reasoning": any(name in source for name in KEEPS_THOUGHTS),
        "supports_reasoning_effort": "reasoning_effort" in source,
        "supports_string_content": True,
        "supports_system_role": template.takes_system,
        "supports_tool_calls": bool(traits.calls),
        "supports_tools": traits.shows_tools,
        "supports_typed_content": traits.takes_parts,
    }
