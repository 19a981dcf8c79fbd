"""Receipts to try things on: two prompts, answered plainly, with a drafter and with an oracle."""

from __future__ import annotations

from dataclasses import replace

from pilotfish.daemon.lab.receipts.receipt_types import (
    Arrival,
    ControlRecord,
    DrafterJudgement,
    PinnedWeights,
    Receipt,
    RoundRecord,
    RoundTimes,
    RunEnvironment,
    RunPins,
    RunSettings,
    RunVerdict,
    ServedBy,
    TrialKind,
    TrialRecord,
    TrialTimes,
    TrialVerdict,
)
from pilotfish.hooks.types import EnginePin, EngineSetting, Lane, SamplingParams, TokenizerPin

TIMES = RoundTimes(0.001, 0.0005, 0.02, None, 0.0002, 0.0217)


def a_round(position=12, proposed=(7, 8), accepted=1, committed=(7, 9), drafter="suffix", width=3):
    times = TIMES
    return RoundRecord(position, width, drafter, len(proposed), accepted, len(committed), times, proposed, committed)


def a_trial(name, kind=TrialKind.DRAFT, *, verdict=TrialVerdict.EQUAL, rounds=None, **more):
    rounds = (a_round(),) if rounds is None else rounds
    plain = kind in (TrialKind.PLAIN, TrialKind.COLD)
    ids = tuple(token for round in rounds for token in round.committed)
    given = {
        "name": name,
        "kind": kind,
        "prompt": "quote",
        "n_prompt": 12,
        "drafter": "" if plain else "suffix",
        "length": "" if plain else "2",
        "case": "",
        "repeat": 1,
        "tokens": len(ids),
        "stop": "limit",
        "times": TrialTimes(0.1, 0.5, (Arrival(0.1, 1), Arrival(0.5, len(ids) - 1))),
        "rounds": rounds,
        "verdict": verdict,
        "prompt_ids": tuple(range(3, 15)),
        "output_ids": ids,
    }
    return TrialRecord(**{**given, **more})


def a_receipt(**more) -> Receipt:
    steps = tuple(a_round(12 + i, (), 0, (token,), "", 1) for i, token in enumerate((7, 9)))
    trials = (
        a_trial("plain-quote-1", TrialKind.PLAIN, verdict=TrialVerdict.REFERENCE, rounds=steps),
        a_trial("suffix-2-quote-1", compared_with="plain-quote-1", table={"model": "/home/me/x.gguf", "n": 3}),
        a_trial(
            "control-quote-1",
            TrialKind.CONTROL,
            rounds=(),
            tokens=2,
            prompt_ids=None,
            output_ids=None,
            text="a b",
            control=0,
        ),
    )
    setting = EngineSetting(environment=(("GGML_X", "1"),))
    settings = RunSettings(
        lane=Lane("exact", (1, 2, 3), setting, max_context=4096),
        n_ctx=1024,
        threads=2,
        batch_size=512,
        prompts="lane",
        tokens=2,
        sampling=SamplingParams(temperature=0.0, logit_bias=((3, float("-inf")),)),
        lengths=("2", "auto"),
        repeats=1,
        drafters={"suffix": {}},
        oracle_cases=False,
        order="interleaved",
        control="http://127.0.0.1:11434",
    )
    judgement = DrafterJudgement("suffix", "2", RunVerdict.PASSED, (), 1, 0, 4.0, 3.0, 1.33, 0.1, 0.1)
    receipt = Receipt(
        environment=RunEnvironment("2026-01-02T03:04:05Z", "0.2.0", "3.12", "Linux", "x86_64", 1 << 30, {}),
        pins=RunPins(
            "/home/me/models/m.gguf",
            (PinnedWeights("sha256:" + "a" * 64, 99),),
            TokenizerPin("f" * 64, "gpt2", 50, bos=1, eos=2),
            EnginePin("llama", "b1", "e" * 64),
        ),
        settings=settings,
        trials=trials,
        verdict=RunVerdict.PASSED,
        load_seconds=1.5,
        judgements=(judgement,),
        controls=(ControlRecord("http://127.0.0.1:11434", "0.33.2", ServedBy.STOCK),),
    )
    return replace(receipt, **more)
