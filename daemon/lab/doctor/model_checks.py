"""One model: its files, its prompts' beginning, what it bundles, what was measured of it, whether it fits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich import filesize

from pilotfish.daemon.certify.certificate import DEARER, Certificate, CertificateStore
from pilotfish.daemon.certify.verdicts import ModelReport, describe_model
from pilotfish.daemon.lab.doctor.finding import Finding, Level
from pilotfish.daemon.lab.doctor.surroundings import Surroundings
from pilotfish.daemon.lab.prompt_beginnings import special_text, template_begins
from pilotfish.hooks.errors import BrokenModel, ModelNotFound
from pilotfish.manifests import manifest as media
from pilotfish.manifests.audit import Audit, audit_model
from pilotfish.manifests.fingerprints import tokenizer_pin
from pilotfish.manifests.gguf import GGUFMetadata, read_metadata
from pilotfish.manifests.manifest import Manifest

_ANNOUNCES_DRAFT = (".nextn_predict_layers", ".mtp_layers")  # how keys end that count a model's own draft layers
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
    yield from _drafts(subject)
    yield from _memory(around, subject)
    yield from _measured(around, subject)


def skipped_findings(around: Surroundings) -> Iterator[Finding]:
    """Entries of the store that are no models."""
    for entry in around.skipped:
        yield Finding(Level.WARNING, str(entry.path), entry.reason, "it is not listed as a model")


def _subject(around: Surroundings, manifest: Manifest) -> Patient:
    report = describe_model(around.store, manifest, around.state_dir, verify=False)
    if report.status == "broken":
        return Patient(manifest, report, (), Audit())
    layers = manifest.of_type(media.MODEL)
    files = tuple(read_metadata(around.store.blob(layer, manifest.name), report.name) for layer in layers)
    return Patient(manifest, report, files, audit_model(around.store, manifest, files))


def _verdict(subject: Patient) -> Iterator[Finding]:
    report = subject.report
    if not report.can_speculate:
        yield Finding(Level.NOTE, subject.name, report.reason, "it is served without drafts")
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


def _drafts(subject: Patient) -> Iterator[Finding]:
    """What the model brings to draft with, announced or not, and who can use it."""
    audit = subject.audit
    if not audit.bundles_draft:
        return
    counts = (("layer", audit.draft_layers), ("tensor", audit.draft_tensors), ("file", audit.draft_files))
    found = ", ".join(f"{n} {what}{'s' if n > 1 else ''}" for what, n in counts if n) or "an entry of its config"
    if not audit.draft_config and not any(_announced(metadata) for metadata in subject.files):
        what = f"it bundles an assistant ({found}) that no metadata field announces"
        why = "a count in the metadata proves nothing; whether Ollama uses it shows in its log only"
        yield Finding(Level.WARNING, subject.name, what, why)
    else:
        why = "stock's server can use it: where Ollama asks for it, stock serves"
        if audit.assistant:
            why = f"{audit.assistant.summary}. {why[0].upper()}{why[1:]}"
        yield Finding(Level.NOTE, subject.name, f"it bundles an assistant ({found})", why)


def _announced(metadata: GGUFMetadata) -> bool:
    return any(metadata.number(key) > 0 for key in metadata.values if key.endswith(_ANNOUNCES_DRAFT))


def _memory(around: Surroundings, subject: Patient) -> Iterator[Finding]:
    size = subject.report.size
    if size > around.free:
        need, free = filesize.decimal(size), filesize.decimal(around.free)
        remedy = (
            "end what else holds memory, or take a smaller quantization" if size < around.total else "a smaller one"
        )
        yield Finding(Level.WARNING, subject.name, f"{need} of weights, {free} are free", "loading may fail", remedy)


def _measured(around: Surroundings, subject: Patient) -> Iterator[Finding]:
    """Whether there is a certificate for these weights and these engines, and what its lane costs."""
    if not subject.report.can_speculate:
        return
    remedy = f"pilotfish certify {subject.name}"
    store = CertificateStore(around.state_dir)
    own = list(store.of_weights(subject.report.weights))
    if not own:
        yield _not_certified(subject, [e.certificate for e in store.entries() if e.certificate], remedy)
        return
    fitting = [one for one in own if dict(one.identity.engines) == dict(around.engines)]
    if not fitting:
        others = ", ".join(sorted(_other_engines(own[0], around)))
        what = f"it was certified with another build of {others or 'the engines'}"
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


def _other_engines(certificate: Certificate, around: Surroundings) -> set[str]:
    before, now = dict(certificate.identity.engines), dict(around.engines)
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
