import json

import pytest

from pilotfish.manifests import manifest as media
from pilotfish.manifests.audit import audit_model
from tests.manifests.builders import safetensors_bytes, tiny_gguf, write_model


@pytest.fixture
def audit(store):
    def audit(layers, config=None):
        write_model(store.root, "m", layers, config)
        return audit_model(store, store.manifest("m"))

    return audit


def gguf_layer(tmp_path, **options):
    return (media.MODEL, tiny_gguf(tmp_path / "layer.gguf", **options).read_bytes())


def test_a_plain_model_bundles_nothing(audit, tmp_path):
    found = audit([gguf_layer(tmp_path), (media.TEMPLATE, b"t"), (media.LICENSE, b"MIT"), (media.PARAMS, b"{}")])
    assert found.route == "llama"
    assert not found.bundles_draft
    assert found.obstacles == found.weight_bearing_unknown == ()


def test_draft_tensors_count_whatever_the_metadata_claims(audit):
    found = audit(
        [
            (media.TENSOR, safetensors_bytes("model.embed.weight"), "model.embed.weight"),
            (media.TENSOR, safetensors_bytes("draft.layers.0.q", "draft.layers.0.q.scale"), "draft.layers.0"),
            (media.JSON, json.dumps({"text_config": {"mtp_layers": 0}}).encode(), "config.json"),
        ]
    )
    assert found.draft_tensors == 1
    assert found.bundles_draft
    assert found.route == "mlx"


def test_a_draft_by_its_config_prefix_and_files(audit):
    found = audit(
        [
            (media.TENSOR, safetensors_bytes("assistant.q"), "assistant.q"),
            (media.JSON, b"{}", "draft/config.json"),
        ],
        {"model_format": "safetensors", "draft": {"tensor_prefix": "assistant."}},
    )
    assert (found.draft_tensors, found.draft_files, found.draft_config) == (1, 1, True)


MTP = ("mtp.fc.weight", "mtp.pre_fc_norm_hidden.weight", "mtp.layers.0.self_attn.q_proj.weight")
MODEL = ("draft.model.embed_tokens.weight", "draft.model.layers.0.self_attn.q_proj.weight", "draft.model.norm.weight")
LAYER = ("draft.layers.0.mlp.up_proj.weight", "draft.layers.0.mlp.up_proj.weight.scale")


@pytest.mark.parametrize(
    ("names", "draft", "summary"),
    [
        (MTP, None, f"3 tensors; it needs the model's activations, by {', '.join(MTP)}"),
        (("draft.pre_projection.weight", *MODEL), None, "activations, by draft.pre_projection.weight"),
        (("draft.fc.weight", "draft.layers.0.up.weight"), None, "activations, by draft.fc.weight"),
        (
            ("model.layers.9.eh_proj.weight", "model.layers.9.nextn.x"),
            None,
            "needs the model's activations, by model.la",
        ),
        (MODEL, None, "3 tensors; a model of its own"),
        (MODEL, "LlamaForCausalLM", "LlamaForCausalLM, 3 tensors; a model of its own"),
        (MODEL, "Gemma4AssistantForCausalLM", "3 tensors; it needs the model's activations, by its architecture"),
        (LAYER, None, "1 tensor (draft.layers.0.mlp.up_proj.weight); no model of its own: token embeddings not there"),
    ],
)
def test_the_assistant_is_told_by_the_names_of_its_tensors(audit, names, draft, summary):
    layers = [(media.TENSOR, safetensors_bytes(name), name) for name in ("model.embed_tokens.weight", *names)]
    found = audit(
        [*layers, (media.JSON, b'{"mtp_layers": 0}', "config.json")],
        {"draft": {"architecture": draft}} if draft else None,
    )
    assert found.assistant is not None
    assert summary in found.assistant.summary
    assert found.assistant.self_contained == ("a model of its own" in summary)
    assert found.bundles_draft


def test_prediction_heads_inside_a_gguf_are_counted(audit, tmp_path):
    names = ("token_embd.weight", "blk.1.nextn.eh_proj.weight", "mtp.0.fc.weight")
    found = audit([gguf_layer(tmp_path, tensors=names, values={"llama.nextn_predict_layers": 0})])
    assert (found.draft_tensors, found.bundles_draft) == (2, True)
    assert found.obstacles == ()


@pytest.mark.parametrize(
    ("layer", "obstacle"),
    [
        ((media.ADAPTER, b"GGUF"), "1 adapter layer"),
        ((media.PREFIX + "lora-adapter", b"?"), "unknown weights (application/vnd.ollama.image.lora-adapter)"),
        ((media.PREFIX + "draft.v2", b"?"), "unknown weights (application/vnd.ollama.image.draft.v2)"),
        ((media.PREFIX + "novelty", b"GGUF\x03\0\0\0rest"), "unknown weights (application/vnd.ollama.image.novelty)"),
        ((media.PREFIX + "novelty", safetensors_bytes("x")), "unknown weights (application/vnd.ollama.image.novelty)"),
        ((media.PREFIX + "novelty", bytes(16 << 20)), "unknown weights (application/vnd.ollama.image.novelty)"),
    ],
)
def test_weights_beside_the_model_are_obstacles(audit, tmp_path, layer, obstacle):
    assert obstacle in " ".join(audit([gguf_layer(tmp_path), layer]).obstacles)


@pytest.mark.parametrize("kind", ["notes", "modelfile", "model-card", "draftsman", "json.v2"])
def test_unknown_metadata_is_no_obstacle(audit, tmp_path, kind):
    assert audit([gguf_layer(tmp_path), (media.PREFIX + kind, b'{"a": 1}')]).obstacles == ()


def test_what_is_bundled_for_images_is_said_and_no_obstacle(audit, tmp_path):
    inside = audit([gguf_layer(tmp_path, tensors=("token_embd.weight", "v.patch.weight", "mm.0.weight"))])
    assert (inside.obstacles, inside.media) == ((), "2 vision or audio tensors inside the model file")
    beside = audit([gguf_layer(tmp_path), (media.PROJECTOR, b"GGUF")])
    assert (beside.obstacles, beside.media) == ((), "a projector")
    assert audit([gguf_layer(tmp_path)]).media == ""


def test_a_drafter_beside_the_model_takes_no_part_in_answers(audit, tmp_path):
    found = audit([gguf_layer(tmp_path), (media.DRAFT, b"GGUF")])
    assert found.obstacles == ()
    assert found.bundles_draft


def test_a_manifest_without_weights_has_no_route(audit):
    assert audit([(media.TEMPLATE, b"t")]).route == "none"


def test_an_unreadable_tensor_blob_counts_by_its_layers_name(audit):
    assert audit([(media.TENSOR, b"garbage", "draft.layers.0.weight")]).draft_tensors == 1
