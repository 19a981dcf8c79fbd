"""What a survey saw, setting by setting, for people: why the choice fell as it did."""

from __future__ import annotations

from typing import Any

from pilotfish.daemon.certify.lanes import Measured, classes, company_ratio, offers, plain_ratio, ranges
from pilotfish.daemon.certify.survey import Survey
from pilotfish.hooks.types import Lane

_DIGITS = 4  # of a divergence


def described(survey: Survey, chosen: Lane) -> tuple[dict[str, Any], ...]:
    """JSON-ready values, one table for each setting; one that was measured twice stands there as it was seen last."""
    seen = {measured.setting: measured for measured in (*survey.measured, *survey.refused)}
    return tuple(_described(survey, measured, chosen) for measured in seen.values())


def _described(survey: Survey, measured: Measured, chosen: Lane) -> dict[str, Any]:
    by_start = {str(site.start): [ranges(c) for c in classes(rows)] for site, rows in measured.rows.items()}
    divergence = measured.divergence
    return {
        "engine": measured.setting.engine,
        "setting": measured.setting.title,
        "chosen": measured.setting == chosen.setting,
        "trouble": measured.trouble,
        "classes": by_start,
        "lanes": _lanes(survey, measured),
        "ms": _milliseconds(measured.costs),
        "stock_ms": _milliseconds(measured.stock_costs),
        "prompt_ratio": round(measured.prompt_ratio, 3),
        "prefill_tokens_per_second": _rate(measured.prefill),
        "stock_prefill_tokens_per_second": _rate(measured.stock_prefill),
        "long_prompts": "in the lane" if measured.long_prefill is None else "with stock's cache types",
        "company": round(measured.company, 3),
        "stock_company": round(measured.stock_company, 3),
        "load_seconds": round(measured.load, 2),
        "stock_load_seconds": round(measured.stock_load, 2),
        "divergence": None if divergence is None else round(divergence, _DIGITS),
    }


def _lanes(survey: Survey, measured: Measured) -> list[dict[str, Any]]:
    return [
        {
            "widths": ranges(offer.lane.widths),
            "max_context": offer.lane.max_context,
            "parity": offer.lane.parity,
            "expected_ratio": round(offer.ratio, 3),
            "plain_ratio": round(plain_ratio(offer.lane, measured), 3),
            "company_ratio": round(company_ratio(offer.lane, measured), 3),
        }
        for offer in offers(measured, survey.stock, survey.switch_points)
    ]


def _milliseconds(costs: Any) -> dict[str, float]:
    return {f"{width}@{at}": round(1000 * seconds, 2) for (width, at), seconds in costs.items()}


def _rate(prefill: float) -> float:
    return round(1 / prefill, 1) if prefill else 0.0
