"""A report of a fleet for scripts: everything in its tables, as numbers. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from midstream.report.fleet import froze_of, name_in
from midstream.sources.fleet import Fleet, Histogram, Summary


def fleet_document(
    fleets: Mapping[str, Fleet], labels: Mapping[str, str], freeze_after_s: float, words: Sequence[str]
) -> dict[str, object]:
    """Return what JSON can hold of fleets that were asked for by different labels; what is not known is null."""
    first = next(iter(fleets.values()))

    def described(summary: Summary) -> dict[str, object]:
        froze = froze_of(summary, freeze_after_s)
        return {
            "streams": summary.streams,
            "seen_in": None if summary.max_gap is None else summary.max_gap.count,
            "froze": None
            if froze is None
            else {"count": froze.count, "value": froze.value, "low": froze.low, "high": froze.high},
            "freezes": summary.freezes,
            "hidden_freezes": summary.hidden_freezes,
            "frozen_s": summary.frozen_s,
            "gap": _quantiles(summary.max_gap),
            "first_content": _quantiles(summary.first_content),
            "outcomes": None if summary.ended is None else summary.outcomes(),
            "limit_hits": summary.limit_hits,
            "limit_used": _quantiles(summary.limit_used),
            "output_tokens": _quantiles(summary.output_tokens),
        }

    return {
        "since": first.since,
        "until": first.until,
        "freeze_after_s": freeze_after_s,
        "words": list(words),
        "total": described(first.total),
        "by": {
            by: [{"name": name_in(each, labels[by]), **described(each)} for each in fleet.summaries]
            for by, fleet in fleets.items()
        },
    }


def _quantiles(histogram: Histogram | None) -> dict[str, float | None]:
    return {
        f"p{100 * q:.0f}": None if histogram is None else histogram.quantile(q) for q in (0.5, 0.95, 0.99)
    }
