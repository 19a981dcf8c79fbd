import json
import os
import time
from dataclasses import replace

import numpy as np
import pytest
from gguf import GGMLQuantizationType

from pilotfish.daemon.certify.certificate import CertificateStore, Identity
from pilotfish.daemon.certify.device import device_name
from pilotfish.daemon.certify.left_to_stock import Left, LeftToStock
from pilotfish.daemon.certify.verdicts import describe_model, describe_models
from pilotfish.daemon.config.reader import parse
from pilotfish.hooks.types import Lane, Parity
from pilotfish.manifests import manifest as media
from pilotfish.manifests.store import Store
from tests.fakes.measured import certificate_of
from tests.manifests.builders import damage, safetensors_bytes, safetensors_of, smollm2_path, tiny_gguf, write_model
from tests.plugins.verifiers.tiny_mlx import write_tiny


@pytest.fixture
def store(tmp_path) -> Store:
    return Store(tmp_path / "models")


@pytest.fixture
def report(store, tmp_path):
    """The report of a store with one model made of a tiny GGUF and further layers."""

    def report(*layers, config=None, **options):
        data = tiny_gguf(tmp_path / "layer.gguf", **options).read_bytes()
        write_model(store.root, "m", [(media.MODEL, data), *layers], config)
        (found,) = describe_models(store, tmp_path / "state").models
        return found

    return report


def test_a_plain_model_can_speculate(report):
    found = report()
    assert (found.name, found.status, found.can_speculate, found.reason, found.limits) == (
        "m:latest",
        "ok",
        True,
        "",
        (),
    )
    assert (found.format, found.family, found.parameter_size, found.quantization) == ("gguf", "llama", "1K", "Q4_0")
    assert found.weights[0].startswith("sha256:")
    assert len(found.tokenizer) == len(found.manifest_digest) == 64


def test_the_config_blob_is_believed_before_the_weights(report):
    config = {"model_format": "gguf", "model_family": "smol", "model_type": "1T", "file_type": "Q8_0"}
    found = report(config=config)
    assert (found.family, found.parameter_size, found.quantization) == ("smol", "1T", "Q8_0")


@pytest.mark.parametrize(
    ("layers", "options", "reason"),
    [
        ([(media.ADAPTER, b"GGUF")], {}, "bundles 1 adapter layer: stock llama-server serves it"),
        ([(media.PREFIX + "lora", b"?")], {}, "a layer of unknown weights"),
        ([], {"architecture": "bert"}, "an embedding model"),
        ([], {"values": {"llama.pooling_type": 3}}, "an embedding model"),
        ([], {"values": {"general.type": "mmproj"}, "tokens": None}, "its model layer is a mmproj"),
    ],
)
def test_what_stock_must_serve_says_why(report, layers, options, reason):
    found = report(*layers, **options)
    assert found.status == "ok"
    assert not found.can_speculate
    assert reason in found.reason
    assert found.limits == ()
    assert found.verdict.startswith("no: ")
    assert len(found.verdict.split()) <= 3


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        (
            {"tensor_type": GGMLQuantizationType.Q6_K},
            "Q6_K weights: the widths that keep tokens equal are checked at load",
        ),
        ({"tensor_type": GGMLQuantizationType.F16}, "F16 weights"),
        ({"architecture": "mamba", "values": {"mamba.ssm.conv_kernel": 4}}, "layers with a running state"),
        (
            {"tensors": ("token_embd.weight", "v.blk.0.weight")},
            "1 vision or audio tensors inside the model file: whether the engine reads the file without them",
        ),
        ({"tensors": ("token_embd.weight", "mtp.fc.weight")}, "bundles a drafter of its own"),
    ],
)
def test_what_may_narrow_speculation_is_a_limit_not_a_reason(report, options, limit):
    found = report(**options)
    assert found.can_speculate
    assert found.reason == ""
    assert limit in found.limits[0]
    assert found.verdict == "checked at load"


@pytest.mark.parametrize(
    ("layer", "limit"),
    [
        ((media.PROJECTOR, b"GGUF"), "a projector; requests with images or sound are answered by stock"),
        ((media.DRAFT, b"GGUF"), "bundles a drafter of its own"),
    ],
)
def test_what_is_bundled_for_other_requests_is_a_limit(report, layer, limit):
    found = report(layer)
    assert found.can_speculate
    assert limit in found.limits[0]


def test_unknown_metadata_does_not_disable_speculation(report):
    assert report((media.PREFIX + "novelty", b"{}")).can_speculate


def test_an_mlx_model_goes_its_own_way(store):
    write_model(store.root, "mlx", [(media.TENSOR, safetensors_bytes("a"), "a")], {"model_format": "safetensors"})
    (found,) = describe_models(store).models
    assert (found.status, found.format, found.can_speculate) == ("ok", "safetensors", False)
    assert found.verdict == "no: no engine"
    assert "MLX" in found.reason


@pytest.mark.drafters
def test_an_mlx_model_that_mlx_lm_has_is_for_our_own_server(store):
    write_tiny(store, "tiny")
    found = describe_model(store, store.manifest("tiny"), engine_of=lambda pin: "mlx")
    assert (found.verdict, found.can_speculate, found.engine) == ("pilotfish serve", False, "mlx")
    assert found.own_server
    assert "pilotfish serve speculates with it" in found.reason
    write_tiny(store, "odd", said={"model_type": "odd"})
    assert "no model class for 'odd'" in describe_model(store, store.manifest("odd")).reason


def test_an_mlx_model_is_described_by_its_tensors_and_its_config(store, tmp_path):
    names = ("model.embed_tokens.weight", "draft.pre_projection.weight")
    layers = [(media.TENSOR, safetensors_of({name: ("BF16", np.zeros((4, 5), np.uint16))}), name) for name in names]
    config = {"model_type": "gemma4", "text_config": {"max_position_embeddings": 8192}, "mtp_layers": 0}
    write_model(store.root, "mlx", [*layers, (media.JSON, json.dumps(config).encode(), "config.json")], {"draft": {}})
    (found,) = describe_models(store, tmp_path / "state").models
    assert (found.family, found.quantization, found.parameter_size) == ("gemma4", "BF16", "20")
    assert (found.context_length, found.verified, found.bundles_draft) == (8192, True, True)
    assert found.assistant == "1 tensor; it needs the model's activations, by draft.pre_projection.weight"


def test_a_broken_tensor_is_named_and_the_other_models_are_listed(store, tmp_path):
    store.add_gguf("good", tiny_gguf(tmp_path / "a.gguf"))
    for name in ("b", "c"):
        write_model(store.root, name, [(media.TENSOR, safetensors_bytes(name), name)])
    store.blob(store.manifest("b").layers[0]).unlink()
    path = store.blob(store.manifest("c").layers[0])
    path.write_bytes(path.read_bytes()[:-1] + b"\1")
    found = {model.name: model for model in describe_models(store, tmp_path / "state").models}
    assert [model.status for model in found.values()] == ["broken", "broken", "ok"]
    assert "b:latest: tensor layer b: " in found["b:latest"].reason
    assert "c:latest: tensor layer c: " in found["c:latest"].reason
    assert "was damaged" in found["c:latest"].reason


def test_a_remote_model_is_not_ours(store):
    write_model(
        store.root, "gpt-oss:20b-cloud", [], {"remote_host": "https://ollama.com:443", "remote_model": "gpt-oss"}
    )
    (found,) = describe_models(store).models
    assert (found.can_speculate, found.verdict) == (False, "no: remote")
    assert "runs on https://ollama.com:443" in found.reason


def test_broken_and_skipped_entries_stand_beside_the_good_ones(store, tmp_path):
    store.add_gguf("good", tiny_gguf(tmp_path / "a.gguf"))
    zeroed = store.add_gguf("zeroed", tiny_gguf(tmp_path / "b.gguf", tokens=("x", "y")))
    damage(store.blob(zeroed.layers[0]))
    write_model(store.root, "empty", []).write_bytes(b"")
    listing = describe_models(store)
    found = {report.name: report for report in listing.models}
    assert found["good:latest"].status == "ok"
    broken = found["zeroed:latest"]
    assert (broken.status, broken.can_speculate, broken.verdict) == ("broken", False, "no: broken")
    assert zeroed.layers[0].digest.blob in broken.reason
    (skipped,) = listing.skipped
    assert skipped.path.parts[-2:] == ("empty", "latest")
    assert "is empty" in skipped.reason
    table = json.loads(json.dumps(listing.to_json()))
    assert [entry["name"] for entry in table["models"]] == ["good:latest", "zeroed:latest"]
    assert table["skipped"] == [{"path": str(skipped.path), "reason": skipped.reason}]


def test_damage_behind_a_sound_header_is_found_when_asked(store, tmp_path):
    path = store.blob(store.add_gguf("m", tiny_gguf(tmp_path / "a.gguf")).layers[0])
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(data[:-1] + b"\x01")
    assert [model.status for model in describe_models(store, verify=False).models] == ["ok"]
    assert [model.status for model in describe_models(store).models] == ["broken"]


def test_a_report_is_json(report):
    found = report()
    assert json.loads(json.dumps(found.to_json()))["can_speculate"] is True


@pytest.mark.model
def test_a_real_model(store, tmp_path):
    store.add_gguf("smollm2:135m", smollm2_path())
    (found,) = describe_models(store, tmp_path / "state").models
    assert (found.name, found.quantization, found.context_length) == ("smollm2:135m", "Q4_1", 8192)
    assert found.verified
    assert found.can_speculate
    assert found.limits == ()


def test_a_certified_model_shows_its_lane_and_why_it_is_no_wider(report, tmp_path):
    found = report()
    identity = Identity(found.weights, (("llama", "build"),), device_name(), None, None, None, None, None, ())
    lane = Lane("plain", (1,), parity=Parity.NONE, reason="only single steps are alike")
    made = certificate_of(identity, lane)
    CertificateStore(tmp_path / "state").put(made)
    assert "widths 1, parity none" in report().certificate
    assert "only single steps are alike" in report().certificate
    CertificateStore(tmp_path / "state").put(replace(made, identity=replace(identity, device="another machine")))
    assert report().certificate == made.summary()
    assert report().verdict == "no: widths differ"
    CertificateStore(tmp_path / "state").put(replace(made, lane=replace(lane, widths=(1, 2, 3))))
    assert report().verdict == "yes, certified"


def test_what_was_found_here_says_nothing_of_a_model_over_far_ends(report, store, tmp_path):
    found, config = report(), parse({"engine": {"rpc": ["a:1"]}})
    identity = Identity(found.weights, (("llama", "build"),), device_name(), None, None, None, None, None, ())
    CertificateStore(tmp_path / "state").put(certificate_of(identity, Lane("plain", (1,), reason="alone")))
    file = store.blob(store.manifest("m").of_type(media.MODEL)[0], store.manifest("m").name)
    LeftToStock(tmp_path / "state", file).put("as it was launched", Left("nothing to gain", time.time()))
    (over,) = describe_models(store, tmp_path / "state", config=config).models
    assert (over.verdict, over.certificate, over.left_to_stock) == ("yes", "", None)
    spread = replace(identity, device=f"{device_name()}, far ends a:1 (libraries 12)")
    CertificateStore(tmp_path / "state").put(certificate_of(spread, Lane("wide", (1, 2))))
    (over,) = describe_models(store, tmp_path / "state", config=config).models
    assert over.verdict == "yes, certified"
    assert report().verdict == "no: widths differ"


def test_a_model_that_was_left_to_stock_says_so_until_it_changes(report, store, tmp_path):
    found = report()
    path = store.blob(store.manifest("m").weights[0])
    os.utime(path, (1, 1))
    time.sleep(0.06)  # what was changed a moment ago is not remembered
    left = Left("its sliding window forgets", time.time())
    LeftToStock(tmp_path / "state", path).put("a launch", left)
    (found,) = describe_models(store, tmp_path / "state").models
    assert (found.verdict, found.left_to_stock) == ("no: left to stock", left)
    assert json.loads(json.dumps(found.to_json()))["left_to_stock"]["reason"] == left.reason
    os.utime(path, (2, 2))
    assert describe_models(store, tmp_path / "state").models[0].verdict == "yes"
