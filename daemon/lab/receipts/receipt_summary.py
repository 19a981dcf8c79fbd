"""A receipt in words: what was asked, what it came to, and what does not count."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pilotfish.daemon.lab.receipts.receipt_figures import (
    FEW,
    GroupFigures,
    bursts,
    groups_of,
    is_sound,
    median,
    plain_step,
    rate_of,
)
from pilotfish.daemon.lab.receipts.receipt_types import (
    ControlRecord,
    DrafterJudgement,
    Receipt,
    ServedBy,
    TrialKind,
    TrialRecord,
    TrialVerdict,
)

SUMMARY = "summary.txt"
_SHOWN_WEIGHTS = 3  # an MLX model has one blob for each tensor
_HEADS = (
    "",
    "answers",
    "differ",
    "tok/s",
    "decoding",
    "x plain",
    "accepted",
    "of",
    "share",
    "fallback",
    "first p95 ms",
)


def summary(receipt: Receipt) -> str:
    """Some ten to thirty lines of text."""
    lines = [
        *_opening(receipt),
        "",
        *_table(receipt),
        "",
        *_rounds(receipt),
        *_comparisons(receipt),
        *_closing(receipt),
    ]
    return "\n".join(lines) + "\n"


def _opening(receipt: Receipt) -> Iterator[str]:
    pins, settings = receipt.pins, receipt.settings
    weights = ", ".join(weight.digest[:19] for weight in pins.weights[:_SHOWN_WEIGHTS])
    weights += f" and {more} more" if (more := len(pins.weights) - _SHOWN_WEIGHTS) > 0 else ""
    yield f"{pins.model}: {pins.quantization or 'no quantization'}, {weights}"
    yield f"engine {pins.engine.name} {pins.engine.version}"
    widths = ", ".join(map(str, settings.lane.widths))
    setting = settings.lane.setting.title
    title = settings.lane.name if settings.lane.name == setting else f"{settings.lane.name} ({setting})"
    yield f"lane {title}: widths {widths}, parity {settings.lane.parity}"
    yield f"{receipt.environment.device}; pilotfish {receipt.environment.pilotfish}, {receipt.environment.created}"
    asked = (
        f"{settings.tokens} tokens, lengths {','.join(settings.lengths)}, {settings.repeats} repeats, {settings.order}"
    )
    yield asked
    if receipt.load_seconds is not None:
        yield f"loading took {receipt.load_seconds:.2f} s (cold; in no rate)"


def _table(receipt: Receipt) -> Iterator[str]:
    groups = groups_of(receipt)
    ratios = {(one.drafter, one.length): one for one in receipt.judgements}
    rows = [_HEADS, *(_row(group, ratios.get((group.drafter, group.length))) for group in groups)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(_HEADS))]
    for row in rows:
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        yield "  ".join(cells).rstrip()
    if few := [group for group in groups if group.first_token and group.first_token.few]:
        most = max(group.first_token.n for group in few if group.first_token)
        yield f"p95 is by nearest rank of at most {most} samples: under {FEW} it is the slowest one, no estimate"


def _row(group: GroupFigures, judgement: DrafterJudgement | None) -> tuple[str, ...]:
    first = group.first_token
    return (
        group.title,
        str(group.trials),
        str(group.different),
        _number(group.rate, 2),
        _number(group.decode_rate, 2),
        _number(judgement.ratio if judgement else None, 2),
        str(group.accepted) if group.proposed else "-",
        str(group.proposed) if group.proposed else "-",
        "-" if group.acceptance is None else f"{group.acceptance:.0%}",
        f"{group.fallbacks}/{group.rounds}" if group.drafter else "-",
        f"{1000 * first.seconds:.1f} (n={first.n})" if first else "-",
    )


def _rounds(receipt: Receipt) -> Iterator[str]:
    """Mean milliseconds of each part of a round, against what plain decoding takes for the same ids."""
    step = plain_step(receipt)
    for group in groups_of(receipt):
        found = group.mean_round
        if found is None or not group.drafter:
            continue
        parts = {
            "drafting": found.times.drafting,
            "bridging": found.times.bridging,
            "verification": found.times.verification,
            "transport": found.times.transport,
            "overhead": found.times.overhead,
        }
        said = ", ".join(f"{name} {1000 * s:.2f}" for name, s in parts.items() if s is not None)
        gain = f"; plain decoding takes {1000 * step * found.committed:.2f} for them" if step else ""
        total = f"{1000 * found.times.total:.2f} ms for {found.committed:.2f} ids"
        yield f"a round of {group.title}: {total} ({said}){gain}"
    yield "device times: none, the engine reports none"


def _comparisons(receipt: Receipt) -> Iterator[str]:
    oracles = [trial for trial in receipt.trials if trial.kind is TrialKind.ORACLE]
    if oracles:
        yield f"oracles: {_counted(oracles)}"
    for number, control in enumerate(receipt.controls):
        asked = [trial for trial in receipt.trials if trial.control == number]
        which = f" {number + 1}" if len(receipt.controls) > 1 else ""
        how = f"{_served(control)}, by bytes and counts (it shows no ids): {_counted(asked)}{_timed(asked)}"
        yield f"control{which}, {how if asked else 'an Ollama that was not asked'}"
    for trial in receipt.trials:
        if trial.verdict in (TrialVerdict.DIFFERENT, TrialVerdict.FAILED, TrialVerdict.NOT_REACHED):
            yield f"{trial.verdict}: {trial.name}{_where(trial)}"
    longest = max((n for trial in receipt.trials for n in bursts(trial)), default=0)
    if longest:
        yield f"ids arrived in bursts of up to {longest}: one arrival each, recorded as one"


def _closing(receipt: Receipt) -> Iterator[str]:
    yield from receipt.notes
    for judgement in receipt.judgements:
        why = f": {'; '.join(judgement.reasons)}" if judgement.reasons else ""
        yield f"{judgement.drafter}, {judgement.length}: {judgement.verdict}{why}"
    yield f"verdict: {receipt.verdict}"


def _served(control: ControlRecord) -> str:
    """`an Ollama 0.33.2 with a runner of pilotfish's in the lane ..., 12 of 40 drafts accepted`."""
    name = f"an Ollama {control.version}".rstrip()
    about = f" ({control.about})" if control.about else ""
    if control.served_by is ServedBy.UNKNOWN:
        return f"{name}{about}"
    if control.served_by is ServedBy.STOCK:
        return f"{name} with its own llama-server"
    drafts = f"{control.accepted} of {control.drafted} drafts accepted" if control.drafted else "which drafted nothing"
    return f"{name} with a runner of pilotfish's in the lane {control.lane} (parity {control.parity}), {drafts}{about}"


def _timed(asked: Sequence[TrialRecord]) -> str:
    """What a control took, its cold answer apart; its own count of tokens over the client's clock."""
    cold = [trial.times.total for trial in asked if trial.case and trial.times.total > 0]
    rate = median(rate_of(trial) for trial in asked if not trial.case and is_sound(trial))
    parts = [f"{rate:.2f} tok/s"] if rate else []
    return "".join(f"; {part}" for part in [*parts, *(f"its cold answer took {seconds:.2f} s" for seconds in cold)])


def _counted(trials: Sequence[TrialRecord]) -> str:
    counts = {verdict: sum(trial.verdict is verdict for trial in trials) for verdict in TrialVerdict}
    return ", ".join(f"{n} {verdict}" for verdict, n in counts.items() if n)


def _where(trial: TrialRecord) -> str:
    unit = "byte" if trial.kind is TrialKind.CONTROL else "token"
    at = f", first at {unit} {trial.differs_at}, its rates are diagnostic" if trial.differs_at is not None else ""
    return at + (f": {trial.about}" if trial.about else "")


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
