"""The sentences of a report before its tables: what was seen, how bad it was, and what to look at next. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import tzinfo

from midstream._support.numbers import bounds, moment, percent, plural, seconds, zone_name
from midstream.advice.threshold import Threshold, is_measured, threshold_of
from midstream.report.grouping import name_of
from midstream.report.phases import phase_sentence
from midstream.report.summary import StreamSummary, summarise
from midstream.report.went_on import went_on
from midstream.stream.model import Outcome, StreamRecord

MOSTLY = 0.8
"""The part of all freezes from which one place is named for them."""

_ENDINGS = {
    Outcome.NO_FINISH: "ended without a finish reason",
    Outcome.LEFT_EARLY: "{be} left by the program",
    Outcome.CANCELLED: "{be} cancelled",
    Outcome.TIMEOUT: "timed out",
    Outcome.ERROR: "failed",
    Outcome.EMPTY: "{be} empty",
    Outcome.UNREAD: "{be} never read",
}


def in_words(records: Sequence[StreamRecord], zone: tzinfo | None = None) -> tuple[str, ...]:
    """Say what these streams show, in a sentence for each thing; times in this zone, or the machine's."""
    if not records:
        return ("There are no streams here.",)
    total = summarise(records)
    return tuple(filter(None, _sentences(records, total, zone)))


def _sentences(records: Sequence[StreamRecord], total: StreamSummary, zone: tzinfo | None) -> Iterator[str]:
    yield _what(records, zone)
    yield _froze(total, threshold_of(records))
    yield phase_sentence(records)
    yield _where(records, total)
    yield _whose(records, total)
    if total.hidden:
        yield (
            f"The server also froze {plural(total.hidden, 'time')} while the program was busy and did not wait "
            "for it; no answer was delayed by that."
        )
    if total.buffered:
        yield (
            f"{plural(total.buffered, 'answer')} came in one burst, in which no gap can be measured: look for a proxy "
            "that buffers."
        )
    yield _endings(total)
    yield _limits(total)


def _what(records: Sequence[StreamRecord], zone: tzinfo | None) -> str:
    first, last = min(r.started_at for r in records), max(r.started_at for r in records)
    models = {name_of(record, "model") for record in records}
    servers = {name_of(record, "server") for record in records}
    when = (
        f"at {moment(first, zone)}"
        if len(records) == 1
        else f"begun from {moment(first, zone)} to {moment(last, zone)}"
    )
    return (
        f"{plural(len(records), 'stream')} {when} ({zone_name(first, zone)}), of {plural(len(models), 'model')} at "
        f"{plural(len(servers), 'server')}."
    )


def _froze(total: StreamSummary, threshold: Threshold) -> str:
    seen = total.froze.total
    if not seen:
        return "No gap could be measured: that takes an answer that arrives in several pieces."
    longest = f"The longest gap was {seconds(total.gap.max)}"
    if not total.froze.count:
        if seen == 1:
            return f"The one stream in which a gap can be measured did not freeze. {longest}."
        return (
            f"None of the {seen:,} streams in which a gap can be measured froze: with 95 % confidence, no more than "
            f"{percent(total.froze.high)} of all do. {longest}."
        )
    times = "" if total.freezes == total.froze.count else f", {plural(total.freezes, 'time')} in all"
    ended = f", and {plural(total.never_ended, 'stream')} ended while frozen" if total.never_ended else ""
    length = "" if threshold.value_s is None else f" (a gap of {threshold.value_s:g} s or more)"
    return (
        f"{total.froze.count:,} of {plural(seen, 'stream')} froze{length}{times}, for {seconds(total.frozen_s)} "
        f"together; with 95 % confidence, {bounds(total.froze)} of all do. {longest}{ended}."
    )


def _where(records: Sequence[StreamRecord], total: StreamSummary) -> str:
    """Name the one place where most of it happened, if there is more than one place."""
    everybody = Counter(_place(record) for record in records if is_measured(record))
    frozen = Counter(_place(record) for record in records if is_measured(record) and record.freezes)
    if len(everybody) < 2 or total.froze.count < 2:
        return ""
    (model, server), count = frozen.most_common(1)[0]
    # Where most streams are, most freezes are, too.
    if count < MOSTLY * total.froze.count or everybody[model, server] >= MOSTLY * total.froze.total:
        return ""
    return f"{count:,} of the {total.froze.count:,} streams that froze were of model {model} at {server}."


def _place(record: StreamRecord) -> tuple[str, str]:
    return name_of(record, "model"), name_of(record, "server")


def _whose(records: Sequence[StreamRecord], total: StreamSummary) -> str:
    if not total.freezes:
        return ""
    shared, freezes = total.shared.count, total.freezes
    if shared == freezes:
        what = "In every freeze" if freezes > 1 else "In that freeze"
        return (
            f"{what} the server's other streams had a gap, too: it was the whole server, or the way to it. Look for "
            "a long prefill or an engine that stood still, and at the network."
        )
    if total.suspected.get("withheld", 0) == total.froze.count:
        return (
            "The tokens of those gaps came all at once after them, so they were made and held back: look at the "
            "server's parser for tool calls or reasoning, and at proxies between."
        )
    told = _apart(freezes, shared, min(went_on(records), freezes - shared))
    return (
        f"{' '.join(told)} The client cannot see why: look at the server's counters of preempted requests at those "
        "moments, and ask `midstream advise` for a limit or a cap."
    )


def _apart(freezes: int, shared: int, others_went_on: int) -> Iterator[str]:
    """Return for which freezes it is known whether the server stood still, and for which not."""
    untold = freezes - shared - others_went_on
    if freezes == 1:
        if untold:
            yield (
                "Whether only that stream froze or the whole server is not known: no other stream is known to have "
                "gone on there meanwhile."
            )
        else:
            yield "During that freeze another stream of the same server went on."
        return
    if shared:
        yield f"In {shared:,} of {freezes:,} freezes the server's other streams had a gap, too."
    if others_went_on:
        yield f"During {others_went_on:,} of {freezes:,} freezes another stream of the same server went on."
    if untold:
        yield (
            f"For {untold:,} it is not known whether the whole server stood still: no other stream is known to have "
            "gone on there meanwhile."
        )


def _endings(total: StreamSummary) -> str:
    told = [
        f"{(count := total.outcomes[outcome.value]):,} {words.format(be='was' if count == 1 else 'were')}"
        for outcome, words in _ENDINGS.items()
        if outcome.value in total.outcomes
    ]
    completed = total.outcomes.get(Outcome.COMPLETED.value, 0)
    return f"{completed:,} of {total.streams:,} completed; {', '.join(told)}." if told else ""


def _limits(total: StreamSummary) -> str:
    parts = []
    if total.length.count:
        parts.append(f"{total.length.count:,} of {total.finished:,} finished answers ended by length")
    if total.limit_hits.count > total.length.count:
        more = total.limit_hits.count
        parts.append(f"{more:,} reached the limit asked for, whatever their finish reason says")
    used = total.limit_used
    if used.p50 is not None and used.p95 is not None:
        parts.append(
            f"half of the answers used {percent(used.p50)} of their token limit or less, and 95 % of them "
            f"{percent(used.p95)} or less"
        )
    if not parts:
        return ""
    said = "; ".join(parts)
    return f"{said[0].upper()}{said[1:]}."
