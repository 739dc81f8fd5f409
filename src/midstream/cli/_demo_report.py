"""What `midstream demo` prints when the streams have ended: the records, the metrics, and what they mean."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample
from rich.console import Console
from rich.text import Text

from midstream import StreamRecord
from midstream._instruments import (
    ACTIVE,
    ENDED,
    FINISH_REASON,
    FREEZES,
    FROZEN,
    FROZEN_TIME,
    LIMIT_HITS,
    MAX_GAP,
    OPEN_GAP,
    OUTCOME,
    Metric,
    prometheus_label,
    prometheus_name,
)
from midstream.cli._demo_live import ABSENT, Timeline, seconds, timeline_table
from midstream.cli._demo_load import Load
from midstream.cli._demo_user import User

WIDE = 96
"""The width from which there is room for the timelines, too."""
BUCKET = "le"
SHOWN_LABELS = (prometheus_label(OUTCOME), prometheus_label(FINISH_REASON), BUCKET)
MEANWHILE = (ACTIVE, FROZEN, OPEN_GAP)
AFTERWARDS = (FREEZES, FROZEN_TIME, ENDED, LIMIT_HITS)


def show(console: Console, load: Load, page: str) -> None:
    """Print everything; `page` is what the metrics endpoint said at the end."""
    records = [user.record for user in load.users if user.record is not None]
    _records(console, load)
    _print(console, "", _fidelity(load), "")
    _metrics(console, load, page)
    _print(console, "", *_story(records, load))


def _print(console: Console, *lines: str | Text) -> None:
    for line in lines:
        # Whoever reads a pipe wants lines whole; on a terminal they break between words.
        console.print(line, markup=False, soft_wrap=not console.is_terminal)


def _heading(console: Console, title: str, rest: str) -> None:
    _print(console, Text.assemble((title, "bold"), f"  {rest}"))


def _records(console: Console, load: Load) -> None:
    _heading(console, "The records", "one for each stream, exactly once, as on_end gets it")
    columns = ("first content", "longest gap", "freezes", "outcome", "finish", "tokens")
    table = timeline_table(load.plan.lasts_s, *columns)
    if console.width < WIDE:
        table.columns.pop()
    for user in load.users:
        if user.record is not None:
            row = user.row()
            line = Timeline(row.answer, row.frozen, load.plan.lasts_s, ended=False)
            table.add_row(*_cells(user, user.record), *([line] if console.width >= WIDE else []))
    console.print(table)


def _cells(user: User, record: StreamRecord) -> Iterator[Text]:
    froze = "red" if record.freezes else ""
    yield Text(str(user.number))
    yield Text(seconds(record.time_to_first_content_s))
    yield Text(f"{seconds(record.max_gap_s)} at {seconds(record.max_gap_at_s, 1)}", style=froze)
    yield Text(str(record.freezes), style=froze)
    yield Text(record.outcome.value)
    yield Text(", ".join(reason or ABSENT for reason in record.finish_reasons) or ABSENT)
    yield Text(f"{record.output_tokens or '?'}/{record.token_limit or '?'}")


def _fidelity(load: Load) -> str:
    """Say how far the measured gaps are from what was recorded."""
    off = max(
        (
            abs(user.record.max_gap_s - user.recorded.longest_gap_s / load.plan.speed)
            for user in load.users
            if user.record is not None and user.record.max_gap_s is not None
        ),
        default=0.0,
    )
    return f"Measured against the recording, no longest gap is off by more than {1000 * off:.0f} ms."


def _metrics(console: Console, load: Load, page: str) -> None:
    end = list(_samples(page))
    shared = ", ".join(
        f'{name}="{value}"'
        for name, value in end[0].labels.items()
        if name not in SHOWN_LABELS and not name.startswith("otel_")
    )
    _heading(console, "The metrics", f"as Prometheus gets them from {load.metrics_url}")
    _comment(console, f"every line also has {shared}")
    if load.scraped is not None:
        at_s, meanwhile = load.scraped
        _print(console, "")
        _comment(console, f"at {at_s:.1f} s, when the last freeze began")
        _lines(console, _of(_samples(meanwhile), MEANWHILE))
    _print(console, "")
    _comment(console, "at the end, what has moved")
    _lines(console, [*_moved(end), *(sample for sample in _of(end, AFTERWARDS) if sample.value)])


def _comment(console: Console, comment: str) -> None:
    _print(console, Text(f"# {comment}", style="dim"))


def _samples(page: str) -> Iterator[Sample]:
    for family in text_string_to_metric_families(page):
        yield from (sample for sample in family.samples if sample.name.startswith("stream_"))


def _of(samples: Iterable[Sample], metrics: Iterable[Metric]) -> list[Sample]:
    by_name: dict[str, list[Sample]] = {}
    for sample in samples:
        by_name.setdefault(sample.name, []).append(sample)
    return [sample for metric in metrics for sample in by_name.get(prometheus_name(metric), [])]


def _moved(samples: Iterable[Sample]) -> Iterator[Sample]:
    """Yield the buckets that a longest gap fell into; each counts those before it, too."""
    before = 0.0
    for sample in samples:
        if sample.name == f"{prometheus_name(MAX_GAP)}_bucket" and sample.value > before:
            before = sample.value
            yield sample


def _lines(console: Console, samples: Iterable[Sample]) -> None:
    for sample in samples:
        kept = [f'{name}="{sample.labels[name]}"' for name in SHOWN_LABELS if name in sample.labels]
        labels = f"{{{','.join(kept)}}}" if kept else ""
        _print(console, f"{sample.name}{labels} {round(sample.value, 3)}")


def _story(records: list[StreamRecord], load: Load) -> Iterator[Text]:
    gaps = sorted(record.max_gap_s or 0.0 for record in records if record.freezes)
    if gaps:
        what = (
            f"{len(gaps)} of {len(records)} answers stopped in mid-sentence, for {_from_to(gaps)}: the "
            "server had admitted more than its KV cache holds, and evicted some to finish others; all "
            "of them got HTTP 200, a finish reason and every token, so no error rate shows it."
        )
    else:
        longest = max((record.max_gap_s or 0.0 for record in records), default=0.0)
        what = (
            f"No answer was silent for {load.plan.freeze_after_s:g} s, the longest for {longest:.2f} s: "
            "with a lower --freeze-after, some would count as frozen."
        )
    yield Text.assemble(("What happened: ", "bold"), what)
    yield Text.assemble(
        ("What to do next: ", "bold"),
        "see whether your own server does this with ",
        ("midstream probe URL", "bold cyan"),
        ", and keep watching from your own code with ",
        ("client = monitor(OpenAI())", "bold cyan"),
        ".",
    )


def _from_to(gaps: list[float]) -> str:
    return f"{gaps[0]:.2f} s" if len(gaps) == 1 else f"{gaps[0]:.2f} to {gaps[-1]:.2f} s"
