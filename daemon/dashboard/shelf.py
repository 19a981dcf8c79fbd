"""What lies on disk about models: verdicts, pins and certificates, read again on a thread when it is another.

Reading a weight file's header takes a moment, so a report is kept as long as its manifest, the certificates and what
was left to stock stay as they are.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pilotfish.daemon.certify.certificate import FOLDER, Certificate, CertificateStore, Entry
from pilotfish.daemon.certify.verdicts import ModelReport, describe_model
from pilotfish.daemon.config.types import Config
from pilotfish.daemon.control import decision_log
from pilotfish.daemon.control.decision_log import Logged
from pilotfish.daemon.control.stamps import Stamp, stamp_of
from pilotfish.hooks.errors import PilotfishError
from pilotfish.manifests.store import Store

log = logging.getLogger("pilotfish.dashboard")

LOOK_EVERY = 10.0  # seconds, and only while somebody looks
PATIENCE = 1.0  # seconds that an answer waits for what is read


class Shelf:
    """`models` are the reports of the last look, by name. `config` is the one in force."""

    def __init__(
        self,
        store: Store,
        state_dir: Path,
        clock: Callable[[], float] = time.monotonic,
        config: Callable[[], Config] = Config,
    ) -> None:
        self.models: dict[str, ModelReport] = {}
        self.decisions: list[Logged] = []
        self._store = store
        self._state_dir = state_dir
        self._clock = clock
        self._config = config
        self._looked = -LOOK_EVERY
        self._known: dict[str, tuple[object, ModelReport]] = {}
        self._decided: Stamp | None = None
        self._looking = asyncio.Lock()
        self._glances: set[asyncio.Task[bool]] = set()

    async def look(self, *, now: bool = False) -> bool:
        """Read what changed, if the last look is some time ago; whether anything did."""
        async with self._looking:
            news = await asyncio.to_thread(self._look_at_decisions)
            if not now and not news and self._clock() - self._looked < LOOK_EVERY:
                return False
            before = self.models
            self.models = await asyncio.to_thread(self._read)
            self._looked = self._clock()
            return news or before != self.models

    async def glance(self, patience: float = PATIENCE) -> None:
        """Look, but wait no longer than that: of a large store `models` are those that were read so far."""
        looking = asyncio.create_task(self.look(), name="shelf")
        self._glances.add(looking)
        looking.add_done_callback(self._glances.discard)
        done, _ = await asyncio.wait({looking}, timeout=patience)
        for look in done:
            look.result()

    async def close(self) -> None:
        """Do not wait for those that still read."""
        for looking in self._glances:
            looking.cancel()
        await asyncio.gather(*self._glances, return_exceptions=True)

    def _look_at_decisions(self) -> bool:
        stamp = stamp_of(self._state_dir / decision_log.FILE_NAME)
        if stamp == self._decided:
            return False
        self._decided, self.decisions = stamp, decision_log.read(self._state_dir)
        return True

    def _read(self) -> dict[str, ModelReport]:
        around = (stamp_of(self._state_dir / FOLDER), self._decided)
        reports: dict[str, ModelReport] = {}
        config = self._config()
        for manifest in self._store.models().models:
            name = manifest.name.short
            basis = (manifest.digest, around, config.for_model(name).engine.rpc)
            known = self._known.get(name)
            if known is None or known[0] != basis:
                known = (basis, self._described(manifest, config))
                self._known[name] = known
            reports[name] = known[1]
            self.models = {**self.models, name: known[1]}
        self._known = {name: known for name, known in self._known.items() if name in reports}
        return reports

    def _described(self, manifest: Any, config: Config) -> ModelReport:
        try:
            return describe_model(self._store, manifest, self._state_dir, verify=False, config=config)
        except (PilotfishError, OSError) as error:
            log.debug("%s", manifest.name.short, exc_info=error)
            return ModelReport(manifest.name.short, "broken", verdict="no: broken", reason=str(error))

    async def certificates(self) -> list[dict[str, Any]]:
        """Every certificate of this machine with its rows, newest first, JSON-ready."""
        entries = await asyncio.to_thread(CertificateStore(self._state_dir).entries)
        return [_entry_json(entry) for entry in entries]


def _entry_json(entry: Entry) -> dict[str, Any]:
    found = entry.certificate
    return {"key": entry.key, "trouble": entry.trouble, **(_certificate_json(found) if found else {})}


def _certificate_json(certificate: Certificate) -> dict[str, Any]:
    """What people want to see of it."""
    lane = certificate.lane
    return {
        "model": certificate.model,
        "summary": certificate.summary(),
        "created": certificate.created,
        "engine": certificate.engine,
        "weights": list(certificate.identity.weights),
        "device": certificate.identity.device,
        "quantization": certificate.quantization,
        "lane": {
            "name": lane.name,
            "setting": lane.setting.title,
            "widths": list(lane.widths),
            "parity": lane.parity,
            "max_context": lane.max_context,
            "reason": lane.reason,
        },
        "n_ctx": certificate.n_ctx,
        "plain_ratio": certificate.plain_ratio,
        "prompt_ratio": certificate.prompt_ratio,
        "expected_ratio": certificate.expected_ratio,
        "regimes": [dict(regime) for regime in certificate.regimes],
        "settings": [_setting_json(variant) for variant in certificate.variants],
        "findings": list(certificate.findings),
        "seconds": certificate.seconds,
        "complete": certificate.complete,
    }


def _setting_json(variant: Any) -> dict[str, Any]:
    lane = min(variant["lanes"], key=lambda lane: lane["expected_ratio"], default=None)
    return {
        "setting": variant["setting"],
        "chosen": variant["chosen"],
        "widths": lane["widths"] if lane else "",
        "max_context": lane["max_context"] if lane else None,
        "expected_ratio": lane["expected_ratio"] if lane else None,
        "divergence": variant["divergence"],
        "trouble": variant["trouble"],
    }


def report_json(report: ModelReport) -> dict[str, Any]:
    """What the page says of a model in the store."""
    left = report.left_to_stock
    return {
        "size": report.size,
        "family": report.family,
        "parameters": report.parameter_size,
        "quantization": report.quantization,
        "context_length": report.context_length,
        "weights": list(report.weights),
        "digest": report.manifest_digest,
        "pinned": report.verified,
        "verdict": report.verdict,
        "can_speculate": report.can_speculate,
        "reason": report.reason,
        "limits": list(report.limits),
        "certificate": report.certificate,
        "left_to_stock": asdict(left) if left else None,
    }
