"""What a drafter, a bridge and a verifier are. Plain protocols: hooks hand objects over, these do the work.

Each stands with its subject, in `drafter`, `bridge`, `target`, `target_capabilities`, `hidden`, `probe`, `inspection`,
`far_end` and `verifier` beside this module, and all of them can be imported from here.

A session's life, as the coordinator drives it::

    engine  = verifier.load(pin, lane, options)          once per model
    target  = engine.open(prompt, sampling)              once per request
    while target.prefill(): ...                          prompt blocks; the caller may stop between two
    draft   = drafter.open(pin, prompt)

    round:    proposal = draft.propose(k)
              rows     = target.verify(ids)              one forward: [pending] + ids
              accepted = rows.pick(0), rows.pick(1), ... up to the first pick that differs
              target.commit(accepted); draft.commit(accepted)     or target.rollback(); draft.rollback()

    target.close(); draft.close()

All calls of one session come from one thread at a time. No call may touch an event loop. A call out of turn (verify
before the prompt is fed, commit without verify, anything after close) raises PilotfishError. The sessions of an engine
with slots take turns: between one's verify and its commit or rollback no other one forwards, but for those that were
verified together.

A drafter must be a `Drafter`, a bridge a `Bridge`, a verifier a `Verifier`. Whatever else one can do, it says by what
it has: `LoadableDrafter`, `SpeaksVocabulary`, `ServesSessions`, `TellsStatus`, `MayEnd`, `AsksForHidden`, of its
sessions `TakesHidden`; `CountsDrafterIds`; `CertifiableVerifier`, `RefusesModels`, `ReadsVocabularies`,
`TellsDevices`, `TellsFootprint`, `TellsMemory`, `Requantizes`, `ComputesForOthers`; of its engines, `HasSlots`,
`VerifiesTogether`, `RestoresStates`, `RemembersConversations`, `KeepsConversations`, `ReadsPromptsFast`,
`SpansMachines`, `TellsCosts` and `HasHidden`; of its sessions, `ShiftsContext` and `GivesHidden`; of its probes,
`ReadsLogits`, `StepsTogether`, `ReadsPromptsApart`, `TellsEdges`, `RestoresStates`, `InspectsForwards` and
`LooksDeeper`.
"""

from __future__ import annotations

from pilotfish.hooks.bridge import Bridge, BridgeFactory, CountsDrafterIds, Vocabulary
from pilotfish.hooks.drafter import (
    Drafter,
    DrafterFactory,
    DraftSession,
    Host,
    LoadableDrafter,
    MayEnd,
    ServesSessions,
    SpeaksVocabulary,
    TellsStatus,
)
from pilotfish.hooks.far_end import ComputesForOthers
from pilotfish.hooks.hidden import AsksForHidden, GivesHidden, HasHidden, TakesHidden
from pilotfish.hooks.inspection import InspectsForwards
from pilotfish.hooks.probe import LooksDeeper, Probe, ReadsLogits, ReadsPromptsApart, StepsTogether, TellsEdges
from pilotfish.hooks.target import Rows, ShiftsContext, TargetEngine, TargetSession, Tokenizer
from pilotfish.hooks.target_capabilities import (
    HasSlots,
    KeepsConversations,
    ReadsPromptsFast,
    RemembersConversations,
    RestoresStates,
    SlotSession,
    SpansMachines,
    TellsCosts,
    VerifiesTogether,
)
from pilotfish.hooks.verifier import (
    CertifiableVerifier,
    ReadsVocabularies,
    RefusesModels,
    Requantizes,
    TellsDevices,
    TellsFootprint,
    TellsMemory,
    Verifier,
    VerifierFactory,
)

__all__ = [
    "AsksForHidden",
    "Bridge",
    "BridgeFactory",
    "CertifiableVerifier",
    "ComputesForOthers",
    "CountsDrafterIds",
    "DraftSession",
    "Drafter",
    "DrafterFactory",
    "GivesHidden",
    "HasHidden",
    "HasSlots",
    "Host",
    "InspectsForwards",
    "KeepsConversations",
    "LoadableDrafter",
    "LooksDeeper",
    "MayEnd",
    "Probe",
    "ReadsLogits",
    "ReadsPromptsApart",
    "ReadsPromptsFast",
    "ReadsVocabularies",
    "RefusesModels",
    "RemembersConversations",
    "Requantizes",
    "RestoresStates",
    "Rows",
    "ServesSessions",
    "ShiftsContext",
    "SlotSession",
    "SpansMachines",
    "SpeaksVocabulary",
    "StepsTogether",
    "TakesHidden",
    "TargetEngine",
    "TargetSession",
    "TellsCosts",
    "TellsDevices",
    "TellsEdges",
    "TellsFootprint",
    "TellsMemory",
    "TellsStatus",
    "Tokenizer",
    "Verifier",
    "VerifierFactory",
    "VerifiesTogether",
    "Vocabulary",
]
