"""What is in the model store, and what pilotfish can do for each of it: the content of `pilotfish models`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pilotfish.daemon.certify.certificate import Certificate, CertificateStore, is_of_here
from pilotfish.daemon.certify.expected_engine import EngineOf
from pilotfish.daemon.certify.left_to_stock import Left, LeftToStock
from pilotfish.daemon.config.types import TENSOR_ENGINE, Config
from pilotfish.daemon.registry.registry import Registry
from pilotfish.hooks.errors import BrokenModel, ModelNotFound
from pilotfish.hooks.protocols import RefusesModels
from pilotfish.hooks.types import EngineOptions, TargetPin
from pilotfish.manifests import manifest as media
from pilotfish.manifests.audit import Audit, audit_model
from pilotfish.manifests.fingerprints import known_digest
from pilotfish.manifests.gguf import GGUFMetadata, read_metadata
from pilotfish.manifests.manifest import Manifest, ModelConfig
from pilotfish.manifests.pins import pin_manifest
from pilotfish.manifests.store import Skipped, Store
from pilotfish.manifests.tensor_facts import MLXFacts, describe_tensors
from pilotfish.manifests.tensor_layers import TensorLayers
from pilotfish.manifests.writer import human_number

_DEFAULTS = Config()
EXACT_TYPES = frozenset({"Q4_0", "Q4_1", "Q8_0"})  # one class of forward widths wherever it was measured


@dataclass(frozen=True, slots=True)
class ModelReport:
    """One model. `status` is `ok`, or `broken` when its manifest is readable and its blobs are not.

    `verdict` says in three words at most whether pilotfish can speculate, `reason` why it cannot; `limits` says what
    may still narrow it where it can, as long as the model is not certified.
    """

    name: str
    status: str = "ok"
    size: int = 0  # bytes of all its blobs
    modified: float = 0.0  # seconds since the epoch
    format: str = ""
    family: str = ""
    parameter_size: str = ""
    quantization: str = ""
    context_length: int = 0  # tokens
    manifest_digest: str = ""
    weights: tuple[str, ...] = ()  # digests
    tokenizer: str = ""  # fingerprint
    verified: bool = False  # every weight blob was hashed and is what its name says
    bundles_draft: bool = False
    assistant: str = ""  # what the tensors of a bundled drafter are, and the evidence; empty where there are none
    can_speculate: bool = False  # under an Ollama, and in pilotfish's own server
    own_server: bool = False  # in pilotfish's own server alone: no overlay reaches the engine that Ollama has for it
    verdict: str = ""
    reason: str = ""
    limits: tuple[str, ...] = ()
    engine: str = ""  # what computes it, and why that; empty where nobody asked
    certificate: str = ""  # the lane that was certified on this machine, and why it is no wider; empty without one
    left_to_stock: Left | None = None  # what the last load under Ollama found, if that was that stock serves it better

    def to_json(self) -> dict[str, Any]:
        """The report as JSON-ready values."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class ModelListing:
    """Every model of a store, by name, and every entry that is none, with the reason."""

    models: tuple[ModelReport, ...]
    skipped: tuple[Skipped, ...]

    def to_json(self) -> dict[str, Any]:
        """The listing as JSON-ready values."""
        return {
            "models": [model.to_json() for model in self.models],
            "skipped": [{"path": str(entry.path), "reason": entry.reason} for entry in self.skipped],
        }


def describe_models(
    store: Store, state_dir: Path | None = None, *, verify: bool = True, config: Config = _DEFAULTS
) -> ModelListing:
    """A report for every model in the store.

    Nothing is loaded and nothing raises: what is wrong with a model is in its report. With `verify` every weight blob
    is hashed unless that was done before (remembered under `state_dir`).
    """
    listing = store.models()
    reports = (describe_model(store, manifest, state_dir, verify=verify, config=config) for manifest in listing.models)
    return ModelListing(tuple(reports), listing.skipped)


def describe_model(
    store: Store,
    manifest: Manifest,
    state_dir: Path | None = None,
    *,
    verify: bool = True,
    engine_of: EngineOf | None = None,
    config: Config = _DEFAULTS,
) -> ModelReport:
    """The report of one model whose manifest has been read; see `describe_models`. `engine_of` names its engine,
    `config` whether far ends compute it."""
    report = ModelReport(
        name=manifest.name.short,
        size=manifest.size,
        modified=manifest.modified,
        manifest_digest=manifest.digest,
        weights=tuple(str(layer.digest) for layer in manifest.layers if layer.media_type in media.WEIGHT_TYPES),
    )
    try:
        far_ends = config.for_model(report.name).engine.rpc
        return _describe(store, manifest, report, state_dir, verify, engine_of, far_ends)
    except (BrokenModel, ModelNotFound) as error:
        return replace(report, status="broken", verdict="no: broken", reason=str(error))


def _describe(
    store: Store,
    manifest: Manifest,
    report: ModelReport,
    state_dir: Path | None,
    verify: bool,
    engine_of: EngineOf | None,
    far_ends: Sequence[str],
) -> ModelReport:
    config = store.config(manifest)
    report = _with_config(report, config)
    if config.remote_host:
        return replace(report, verdict="no: remote", reason=f"runs on {config.remote_host}, not on this machine")
    layers = manifest.of_type(media.MODEL)
    files = [read_metadata(store.blob(layer, manifest.name), manifest.name.short) for layer in layers]
    audit = audit_model(store, manifest, files)
    assistant = audit.assistant.summary if audit.assistant else ""
    report = replace(report, bundles_draft=audit.bundles_draft, assistant=assistant)
    if files:
        report = _with_metadata(report, files)
    tensors = TensorLayers.of(manifest, store) if audit.route == "mlx" else None
    if tensors:
        report = _with_tensors(report, describe_tensors(tensors))
    obstacle = _obstacle(audit, files)
    pin: TargetPin | None = None
    if audit.route != "none" and not _is_part(files):
        pin = pin_manifest(store, manifest, state_dir, verify=verify)
        known = verify or (tensors.verified_before(state_dir) if tensors else _is_known(pin, state_dir))
        report = replace(report, tokenizer=pin.tokenizer.fingerprint, verified=known)
    if obstacle and tensors and pin:
        return _beside_ollama(report, pin, obstacle, state_dir, engine_of)
    if obstacle:
        return replace(report, verdict=f"no: {obstacle[0]}", reason=obstacle[1])
    left = LeftToStock(state_dir, store.blob(layers[0], manifest.name)).newest() if layers and not far_ends else None
    engine = engine_of(pin) if engine_of and pin else ""
    report = replace(report, can_speculate=True, engine=engine, left_to_stock=left)
    if certificate := _certificate(report, state_dir, far_ends):
        verdict = "yes, certified" if certificate.lane.max_width > 1 else "no: widths differ"
        return replace(report, verdict=verdict, certificate=certificate.summary())
    limits = tuple(_limits(audit, files))
    if left:
        return replace(report, verdict="no: left to stock", limits=limits)
    return replace(report, verdict="checked at load" if limits else "yes", limits=limits)


def _beside_ollama(
    report: ModelReport,
    pin: TargetPin,
    obstacle: tuple[str, str],
    state_dir: Path | None,
    engine_of: EngineOf | None,
) -> ModelReport:
    """An MLX model: no overlay reaches Ollama's engine for it, and our own server may have one."""
    verifier = Registry.built_in(Config()).verifier(TENSOR_ENGINE)
    options, missing = EngineOptions(state_dir=state_dir), f"there is no engine {TENSOR_ENGINE}"
    if why := verifier.unfit_for(pin, options) if isinstance(verifier, RefusesModels) else missing:
        return replace(report, verdict=f"no: {obstacle[0]}", reason=f"{obstacle[1]}: {why}")
    made = _certificate(report, state_dir)
    reason = (
        "an MLX model (safetensors): pilotfish serve speculates with it, with --upstream before your Ollama, whose own "
        "MLX engine serves it otherwise"
    )
    return replace(
        report,
        own_server=True,
        verdict="pilotfish serve",
        reason=reason,
        engine=engine_of(pin) if engine_of else "",
        certificate=made.summary() if made else "",
    )


def _certificate(report: ModelReport, state_dir: Path | None, far_ends: Sequence[str] = ()) -> Certificate | None:
    """The newest certificate of this model that was made on this machine, and over these far ends."""
    made = CertificateStore(state_dir).of_weights(report.weights)
    return next((one for one in made if is_of_here(one.identity.device, far_ends)), None)


def _is_known(pin: TargetPin, state_dir: Path | None) -> bool:
    """Whether every weight file was hashed in its present state."""
    return all(str(known_digest(weight.path, state_dir)) == weight.digest for weight in pin.weights)


def _with_config(report: ModelReport, config: ModelConfig) -> ModelReport:
    return replace(
        report,
        format=config.model_format,
        family=config.model_family,
        parameter_size=config.model_type,
        quantization=config.file_type,
        context_length=config.context_length,
    )


def _with_metadata(report: ModelReport, files: list[GGUFMetadata]) -> ModelReport:
    """What the config blob left out, from the weights themselves."""
    first = files[0]
    return replace(
        report,
        format=report.format or "gguf",
        family=report.family or first.architecture,
        parameter_size=report.parameter_size or human_number(sum(file.parameter_count for file in files)),
        quantization=report.quantization or first.quantization,
        context_length=report.context_length or first.context_length,
    )


def _with_tensors(report: ModelReport, facts: MLXFacts) -> ModelReport:
    """The same of an MLX model."""
    count = human_number(facts.parameter_count) if facts.parameter_count else ""
    return replace(
        report,
        family=report.family or facts.architecture,
        parameter_size=report.parameter_size or count,
        quantization=report.quantization or facts.quantization,
        context_length=report.context_length or facts.context_length,
    )


def _obstacle(audit: Audit, files: list[GGUFMetadata]) -> tuple[str, str] | None:
    """Why pilotfish cannot speculate for this model, in two words and in a sentence; None when it can."""
    if audit.route == "mlx":
        served = "Ollama's own MLX engine serves it, and none of pilotfish's can"
        return "no engine", f"an MLX model (safetensors): {served}"
    if audit.route == "none":
        return "no weights", "no weights in its manifest; pull the model again"
    if _is_part(files):
        return files[0].kind, f"its model layer is a {files[0].kind}, not a language model"
    if files[0].is_embedding:
        return "embedding model", "an embedding model: it does not generate text"
    if audit.obstacles:
        return "bundles more", f"bundles {', '.join(audit.obstacles)}: stock llama-server serves it"
    return None


def _is_part(files: list[GGUFMetadata]) -> bool:
    """Whether the model layer is something to be added to a model; it has no tokenizer then."""
    return bool(files) and files[0].kind in ("adapter", "mmproj")


def _limits(audit: Audit, files: list[GGUFMetadata]) -> Iterator[str]:
    """What may narrow speculation for this model, to be found out when it is loaded."""
    others = sorted({kind for file in files for kind in file.matrix_types} - EXACT_TYPES)
    if others:
        yield f"{', '.join(others)} weights: the widths that keep tokens equal are checked at load"
    if len(files) > 1:
        yield f"split into {len(files)} files: whether the engine opens them is checked at load"
    if files[0].is_recurrent:
        yield "layers with a running state: whether they can be rolled back is checked at load"
    if audit.media:
        engine = ": whether the engine reads the file without them is checked at load" if audit.vision_tensors else ""
        yield f"{audit.media}{engine}; requests with images or sound are answered by stock llama-server"
    if audit.bundles_draft:
        yield (
            "bundles a drafter of its own: a complete small model drafts where Ollama asks for it; where it needs "
            "the model's activations (MTP, EAGLE, DFlash), stock llama-server serves the model then"
        )
