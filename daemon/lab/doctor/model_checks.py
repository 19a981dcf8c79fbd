"""One model: its files, its prompts' beginning, what it bundles, what was measured of it, whether it fits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich import filesize

from pilotfish.daemon.certify.certificate import DEARER, Certificate, CertificateStore
from pilotfish.daemon.certify.verdicts import ModelReport, describe_model
from pilotfish.daemon.config.types import STOCK_ENGINE
from pilotfish.daemon.lab.doctor.finding import Finding, Level
from pilotfish.daemon.lab.doctor.surroundings import Surroundings
from pilotfish.daemon.lab.prompt_beginnings import special_text, template_begins
from pilotfish.hooks.errors import BrokenModel, ModelNotFound
from pilotfish.manifests import manifest as media
from pilotfish.manifests.audit import Audit, audit_model
from pilotfish.manifests.draft_layers import why_not_a_model
from pilotfish.manifests.fingerprints import tokenizer_pin
from pilotfish.manifests.gguf import GGUFMetadata, read_metadata
from pilotfish.manifests.manifest import Manifest

_ANNOUNCES_DRAFT = (".nextn_predict_layers", ".mtp_layers")  # how keys end that count a model's own draft layers
_BEFORE = "pilotfish serve --upstream URL"
_EXPECTED_GAIN = 1.0  # a higher expected time relative to stock's costs time


@dataclass(frozen=True, slots=True)
class Patient:
    """A model that can be read."""

    manifest: Manifest
    report: ModelReport
    files: tuple[GGUFMetadata, ...]
    audit: Audit

    @property
    def name(self) -> str:
        return self.report.name


def model_findings(around: Surroundings, manifest: Manifest) -> Iterator[Finding]:
    """Everything about one model. A broken one is one finding."""
    try:
        subject = _subject(around, manifest)
    except (BrokenModel, ModelNotFound) as error:
        yield Finding(Level.PROBLEM, manifest.name.short, str(error), "it cannot be used")
        return
    if subject.report.status == "broken":
        yield Finding(Level.PROBLEM, subject.name, subject.report.reason, "it cannot be used")
        return
    yield from _verdict(subject)
    yield from _beginnings(around, subject)
    yield from _drafts(around, subject)
    yield from _memory(around, subject)
    yield from _measured(around, subject)


def skipped_findings(around: Surroundings) -> Iterator[Finding]:
    """Entries of the store that are no models."""
    for entry in around.skipped:
        yield Finding(Level.WARNING, str(entry.path), entry.reason, "it is not listed as a model")


def _subject(around: Surroundings, manifest: Manifest) -> Patient:
    report = describe_model(around.store, manifest, around.state_dir, verify=False, config=around.config)
    if report.status == "broken":
        return Patient(manifest, report, (), Audit())
    layers = manifest.of_type(media.MODEL)
    files = tuple(read_metadata(around.store.blob(layer, manifest.name), report.name) for layer in layers)
    return Patient(manifest, report, files, audit_model(around.store, manifest, files))


def _verdict(subject: Patient) -> Iterator[Finding]:
    report = subject.report
    if report.own_server:
        what = "an MLX model: under Ollama alone no drafts of pilotfish's reach it"
        remedy = f"{_BEFORE} (or `pilotfish serve` without an Ollama)"
        yield Finding(Level.NOTE, subject.name, what, "pilotfish's own server speculates with it", remedy)
    elif not report.can_speculate:
        yield Finding(Level.NOTE, subject.name, report.reason, "it is served without pilotfish's drafts")
    elif left := report.left_to_stock:
        yield Finding(Level.NOTE, subject.name, left.reason, "under Ollama the stock server has it")


def _beginnings(around: Surroundings, subject: Patient) -> Iterator[Finding]:
    """Prompts must begin with BOS exactly once: by the template, the tokenizer, or whoever writes them raw."""
    if not subject.files or subject.files[0].kind not in ("", "model"):
        return
    metadata = subject.files[0]
    pin = tokenizer_pin(metadata.path, around.state_dir, metadata)
    bos = special_text(metadata, pin)
    if not bos:
        return
    templates = [metadata.chat_template, _ollama_template(around, subject.manifest)]
    if any(template_begins(template, bos) for template in templates) and not pin.add_bos:
        what = f"its chat template begins prompts with {bos}, and its tokenizer adds none"
        why = "a raw prompt without it is another prompt: the model may answer with repetitions"
        remedy = f"begin raw prompts with {bos}; chats have it by the template"
        yield Finding(Level.WARNING, subject.name, what, why, remedy)
    elif templates[1].count(bos) == 1 and pin.add_bos:
        what = f"Ollama's template holds {bos}, and the tokenizer adds one"
        why = "the prompt would begin with it twice, which changes answers"
        yield Finding(Level.WARNING, subject.name, what, why, "take it out of the template (ollama create)")
    elif pin.add_bos:
        what = f"its tokenizer begins every prompt with {bos}"
        yield Finding(Level.NOTE, subject.name, what, f"a raw prompt that holds {bos} has it twice")


def _ollama_template(around: Surroundings, manifest: Manifest) -> str:
    layer = manifest.last(media.TEMPLATE, media.PROMPT)
    if layer is None:
        return ""
    return around.store.blob(layer, manifest.name).read_text(encoding="utf-8", errors="replace")


def _drafts(around: Surroundings, subject: Patient) -> Iterator[Finding]:
    """What the model brings to draft with, announced or not, and who can use it."""
    audit = subject.audit
    if not audit.bundles_draft:
        return
    if (by_itself := _complete_assistant(around, subject)) is not None:
        yield by_itself
        return
    counts = (("layer", audit.draft_layers), ("tensor", audit.draft_tensors), ("file", audit.draft_files))
    found = ", ".join(f"{n} {what}{'s' if n > 1 else ''}" for what, n in counts if n) or "an entry of its config"
    announced = audit.draft_config or audit.draft_layers or any(map(_announced, subject.files))
    if subject.audit.route == "mlx":
        yield _beside_tensors(subject, found, announced=bool(announced))
    elif not announced:
        what = f"it bundles an assistant ({found}) that no metadata field announces"
        why = "a count in the metadata proves nothing; whether Ollama uses it shows in its log only"
        yield Finding(Level.WARNING, subject.name, what, why)
    else:
        why = "it needs the target's own activations, which stock's server has: where Ollama asks for it, stock serves"
        if audit.assistant:
            why = f"{audit.assistant.summary}. Where Ollama asks for it, stock serves"
        yield Finding(Level.NOTE, subject.name, f"it bundles an assistant ({found})", why, _compare(subject))


def _beside_tensors(subject: Patient, found: str, *, announced: bool) -> Finding:
    """The assistant of an MLX model: Ollama's own engine may draft with it, our drafter `mlx` with a whole model."""
    assistant = subject.audit.assistant
    what = f"it bundles an assistant ({found})" + ("" if announced else " that no metadata field announces")
    why = f"{assistant.summary}; " if assistant else ""
    if assistant and assistant.self_contained:
        why += "the drafter mlx can draft with it"
        remedy = f'[drafters.mlx] model = "{subject.name}", bundled = true'
    else:
        why += "only Ollama's own MLX engine may draft with it, and whether it does shows in its log only"
        remedy = ""
    return Finding(Level.NOTE if announced else Level.WARNING, subject.name, what, why, remedy)


def _complete_assistant(around: Surroundings, subject: Patient) -> Finding | None:
    """A draft layer that is a complete small model needs nothing of the target's."""
    layers = subject.manifest.of_type(media.DRAFT)
    try:
        if not layers or why_not_a_model(around.store.blob(layers[0], subject.name), subject.name):
            return None
    except BrokenModel as error:
        return Finding(Level.WARNING, subject.name, str(error), "what it brings to draft with cannot be used")
    why = "it drafts by itself: under Ollama as the drafter llama, and in Ollama's own llama-server"
    what = "it bundles a complete small model to draft with"
    return Finding(Level.NOTE, subject.name, what, why, _compare(subject))


def _compare(subject: Patient) -> str:
    return f"pilotfish compare {subject.name} --llama-server PATH"


def _announced(metadata: GGUFMetadata) -> bool:
    return any(metadata.number(key) > 0 for key in metadata.values if key.endswith(_ANNOUNCES_DRAFT))


def _memory(around: Surroundings, subject: Patient) -> Iterator[Finding]:
    size, far = subject.report.size, around.far_free(subject.name)
    if size > around.free + far:
        need, free = filesize.decimal(size), filesize.decimal(around.free + far)
        remedy = (
            "end what else holds memory, or take a smaller quantization"
            if size < around.total + far
            else "a smaller one"
        )
        yield Finding(Level.WARNING, subject.name, f"{need} of weights, {free} are free", "loading may fail", remedy)


def _measured(around: Surroundings, subject: Patient) -> Iterator[Finding]:
    """Whether there is a certificate for these weights and these engines, and what its lane costs."""
    if not (subject.report.can_speculate or subject.report.own_server):
        return
    remedy = f"pilotfish certify {subject.name}"
    store = CertificateStore(around.state_dir)
    own = list(store.of_weights(subject.report.weights))
    if not own:
        yield _not_certified(subject, [e.certificate for e in store.entries() if e.certificate], remedy)
        return
    builds = [dict(around.tensor_engines)] if subject.report.own_server else _builds(around)
    fitting = [one for one in own if dict(one.identity.engines) in builds]
    if not fitting:
        others = _other_engines(own[0], builds[0])
        what = f"it was certified with another build of {', '.join(sorted(others)) or 'the engines'}"
        if STOCK_ENGINE in others and around.ollamas_llama:
            what += f", neither the one here nor that of Ollama {_overlaid_version(around)}".rstrip()
        yield Finding(
            Level.WARNING, subject.name, what, "what was measured does not hold; it is measured again", remedy
        )
        return
    yield from _price(subject, fitting[0])


def _not_certified(subject: Patient, certificates: Sequence[Certificate], remedy: str) -> Finding:
    if any(certificate.model == subject.name for certificate in certificates):
        what = "the tag moved: these are not the weights that were certified under this name"
        return Finding(Level.WARNING, subject.name, what, "nothing that was measured holds for them", remedy)
    why = "its widths are checked for two seconds at load, and no engine is preferred by measurement"
    return Finding(Level.NOTE, subject.name, "not certified yet; an idle runner will do it", why, remedy)


def _builds(around: Surroundings) -> list[dict[str, str]]:
    """With which builds a runner may compute: under Ollama its libllama may take the place of ours."""
    theirs = {**around.engines, STOCK_ENGINE: around.ollamas_llama} if around.ollamas_llama else {}
    return [dict(around.engines), theirs]


def _overlaid_version(around: Surroundings) -> str:
    return str(((around.overlay or {}).get("record") or {}).get("build", {}).get("version", ""))


def _other_engines(certificate: Certificate, now: Mapping[str, str]) -> set[str]:
    before = dict(certificate.identity.engines)
    return {name for name in before.keys() | now.keys() if before.get(name) != now.get(name)}


def _price(subject: Patient, certificate: Certificate) -> Iterator[Finding]:
    """Where being exact costs time beside stock's settings."""
    plain, prompts = certificate.plain_ratio, certificate.prompt_ratio
    dear = [f"{what} take {ratio:.2f}x" for what, ratio in (("steps", plain), ("prompts", prompts)) if ratio > DEARER]
    if dear and certificate.lane.max_width > 1:
        gain = f"{certificate.expected_ratio:.2f}x with drafts"
        level = Level.WARNING if certificate.expected_ratio > _EXPECTED_GAIN else Level.NOTE
        what = f"in its lane {' and '.join(dear)} of stock's time"
        remedy = f"pilotfish off {subject.name}" if level is Level.WARNING else ""
        yield Finding(level, subject.name, what, f"exactness costs that; a token is expected to take {gain}", remedy)
    if certificate.lane.max_width == 1:
        yield Finding(
            Level.NOTE, subject.name, certificate.summary(), "no block of it is exact here: it decodes plainly"
        )
