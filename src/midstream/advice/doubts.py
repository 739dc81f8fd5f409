"""When tuning admission is the wrong tool: what in the data speaks against it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median
from typing import Literal, NamedTuple, TypeAlias

from midstream._support.numbers import percent
from midstream._support.statistics import nearest_rank
from midstream.advice.load import RecordedLoad
from midstream.sources.server import ServerView
from midstream.stream.model import Outcome, StreamRecord

Ground: TypeAlias = Literal[
    "no freeze",
    "never reached",
    "pool never full",
    "no preemption",
    "whole server",
    "withheld",
    "nobody watches",
    "out of capacity",
]

_FULL = 0.9
_FEW = 5
_WAITS_LONG_S = 10.0


class Doubt(NamedTuple):
    """A reason why a cap would not help, or cost more than it gives."""

    ground: Ground
    sentence: str


def doubts(
    records: Sequence[StreamRecord],
    *,
    load: RecordedLoad | None = None,
    pool_tokens: int | None = None,
    view: ServerView | None = None,
    cap: int | None = None,
) -> list[Doubt]:
    """Return every reason that the data give; none is a good sign.

    `pool_tokens` and `view` are what is known of the server: without them its memory cannot speak. `cap` is the one
    that is thought of, if there is one already.
    """
    if load is not None and cap is not None and cap >= load.peak:
        return [
            _never_reached(cap, load.peak),
            *doubts(records, load=load, pool_tokens=pool_tokens, view=view),
        ]
    return [*_of_memory(records, load, pool_tokens, view), *_of_freezes(records), *_of_waiting(records)]


def _never_reached(cap: int, peak: int) -> Doubt:
    return Doubt(
        "never reached",
        f"No more than {peak} streams were ever open at once, so a cap of {cap} would not have held back any of them.",
    )


def _of_memory(
    records: Sequence[StreamRecord],
    load: RecordedLoad | None,
    pool_tokens: int | None,
    view: ServerView | None,
) -> Iterator[Doubt]:
    if load is not None and pool_tokens is not None and load.in_flight < _FULL * pool_tokens:
        yield Doubt(
            "pool never full",
            f"The pool never fills: these streams had at most {load.in_flight:,} tokens in memory at once, "
            f"{percent(load.in_flight / pool_tokens)} of {pool_tokens:,}. Unless others use the server as well, a cap "
            "ends no freeze here.",
        )
    if view is not None and view.preemptions.value == 0 and _frozen(records) and not _older(view, records):
        yield Doubt(
            "no preemption",
            f"{view.title} has not preempted anything since it started, so the freezes come from elsewhere: a busy "
            "engine, a proxy, the network.",
        )


def _older(view: ServerView, records: Sequence[StreamRecord]) -> bool:
    """Tell whether a page was saved before most of the records were made: it counts fewer tokens than they hold."""
    written = sum(record.output_tokens or 0 for record in records)
    return view.generated.value is not None and view.generated.value < written / 2


def _of_freezes(records: Sequence[StreamRecord]) -> Iterator[Doubt]:
    frozen = _frozen(records)
    if records and not frozen:
        yield Doubt(
            "no freeze", f"None of {len(records):,} streams froze: there is nothing for a cap to end."
        )
    total = sum(record.freezes for record in frozen)
    shared = sum(min(record.shared, record.freezes) for record in frozen)
    if len(frozen) >= _FEW and shared > total / 2:
        yield Doubt(
            "whole server",
            f"In {shared:,} of {total:,} freezes the server's other streams had a gap, too: the engine stood still "
            "as a whole, which preemption does not cause. Look for prefills, restarts and pauses before you set a cap.",
        )
    withheld = sum(record.suspected == "withheld" for record in frozen)
    if len(frozen) >= _FEW and withheld > len(frozen) / 2:
        yield Doubt(
            "withheld",
            f"In {withheld:,} of {len(frozen):,} frozen streams the output was made and held back (a parser, a proxy): "
            "no memory was short.",
        )
    if len(frozen) >= _FEW and not any(_given_up(record) for record in records):
        yield Doubt(
            "nobody watches",
            f"No reader gave up: all {len(frozen):,} frozen streams were read to their end. If this is batch work, in "
            "which a freeze disturbs no reader, a cap costs throughput and gains nothing.",
        )


def _of_waiting(records: Sequence[StreamRecord]) -> Iterator[Doubt]:
    waits = sorted(
        record.time_to_first_content_s for record in records if record.time_to_first_content_s is not None
    )
    if len(waits) >= 20 and nearest_rank(waits, 0.95) > _WAITS_LONG_S:
        yield Doubt(
            "out of capacity",
            f"Requests wait already: 5 % for more than {nearest_rank(waits, 0.95):.0f} s before the first token "
            f"(median {median(waits):.1f} s). A lower cap moves the wait there; more memory or servers end it.",
        )


def _frozen(records: Sequence[StreamRecord]) -> list[StreamRecord]:
    return [record for record in records if record.freezes]


def _given_up(record: StreamRecord) -> bool:
    return record.outcome in (Outcome.LEFT_EARLY, Outcome.CANCELLED, Outcome.TIMEOUT)
