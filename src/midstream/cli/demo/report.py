"""What `midstream demo` prints: the streams that froze, the advice that follows, and both acts side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from rich.console import Console
from rich.table import Table
from rich.text import Text

from midstream import StreamRecord
from midstream._support.statistics import nearest_rank
from midstream.advice.capacity import Caps, caps
from midstream.cli.demo.crowd import ActLoad
from midstream.cli.demo.live import ABSENT, AnswerTimeline, seconds, timeline_table
from midstream.cli.demo.stall import StallAct, StallResult
from midstream.cli.demo.story import SERVE
from midstream.cli.demo.user import User
from midstream.engines.page import MetricReading

WIDE = 96
"""The width from which there is room for the timelines, too."""


@dataclass(frozen=True, slots=True)
class ActResult:
    """An act as it was seen: by the clients, and by the server's own page of metrics when it was over."""

    load: ActLoad
    preemptions: MetricReading
    pool_tokens: int

    @property
    def frozen(self) -> list[StreamRecord]:
        """The streams that froze."""
        return [record for record in self.load.records if record.freezes]

    @property
    def lasted_s(self) -> float:
        """From the first call to the last chunk."""
        records = self.load.records
        return max(r.started_at + r.duration_s for r in records) - min(r.started_at for r in records)

    @property
    def tokens(self) -> int:
        """Answer tokens, all together."""
        return sum(record.output_tokens or 0 for record in self.load.records)

    @property
    def first_content_s(self) -> list[float]:
        """What passed before the first words, the shortest first."""
        known = (record.time_to_first_content_s for record in self.load.records)
        return sorted(value for value in known if value is not None)

    @property
    def caps(self) -> Caps:
        """What the lengths of these streams say about how many may run at once."""
        answers = sorted(record.output_tokens or 0 for record in self.load.records)
        prompts = [record.input_tokens or 0 for record in self.load.records]
        return caps(
            self.pool_tokens,
            sum(prompts) / len(prompts),
            sum(answers) / len(answers),
            nearest_rank(answers, 0.95),
        )


def show_records(console: Console, seen: ActResult) -> None:
    """Print one row for each stream that froze, and one sentence about the others."""
    _heading(console, "The streams that froze", "each row is a StreamRecord, as on_end gets it")
    columns = ("first content", "longest gap", "freezes", "outcome", "finish", "tokens")
    table = timeline_table(seen.load.lasts_s, *columns)
    if console.width < WIDE:
        table.columns.pop()
    for user in seen.load.users:
        for record in user.records:
            if record.freezes:
                line = AnswerTimeline(*user.spans(record), seen.load.lasts_s, ended=False)
                table.add_row(*_cells(user, record), *([line] if console.width >= WIDE else []))
    console.print(table)
    others = [record for record in seen.load.records if not record.freezes]
    gaps = [record.max_gap_s or 0.0 for record in others]
    _print(console, f"The longest gap of the {len(others)} other streams: {seconds(max(gaps, default=0.0))}.")


def show_advice(console: Console, seen: ActResult) -> None:
    """Print what follows from the records of the first act: what happened, and which limit to set."""
    answers = sorted(record.output_tokens or 0 for record in seen.load.records)
    mean = sum(answers) / len(answers)
    prompt = sum(record.input_tokens or 0 for record in seen.load.records) / len(answers)
    limits = seen.caps
    _print(console, "", Text.assemble(("What happened: ", "bold"), _happened(seen)))
    _print(
        console,
        "",
        Text.assemble(
            ("The advice: ", "bold"),
            f"answers have {mean:.0f} tokens on average, 95 of 100 at most {nearest_rank(answers, 0.95):.0f}, and "
            f"prompts {prompt:.0f}. The server's /metrics reports a KV cache of {seen.pool_tokens:,} tokens: "
            f"{_fit(limits)}. Limit what runs at once to that; further requests then wait for their first token:",
        ),
        "",
        Text(f"    vllm serve ... --max-num-active-seqs {limits.never}", style="bold cyan"),
        Text("    (--max-num-seqs before vLLM 0.31; other engines: docs/engine-flags.md)", style="dim"),
        "",
    )


def _fit(limits: Caps) -> str:
    if limits.never == limits.average:
        return f"{limits.never} such streams fit, even if all of them are long"
    return f"{limits.never} such streams fit even if all of them are long, {limits.average} of average length"


def show_both(console: Console, before: ActResult, after: ActResult) -> None:
    """Print both acts side by side, and the result."""
    _heading(
        console, "Before and after", f"the same {len(before.load.users)} users, without and with the cap"
    )
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("")
    table.add_column("before", justify="right")
    table.add_column("after", justify="right")
    for name, cells in _figures(before, after):
        style = "red" if name.startswith("frozen") else ""
        table.add_row(name, *(Text(cell, style=style if cell[0] != "0" else "") for cell in cells))
    console.print(table)
    _print(console, "", *_closing(before, after))


def show_stall(console: Console, act: StallAct, result: StallResult) -> None:
    """Print how the answer that stopped was completed, and what it would have been without the timeout."""
    without = act.without()
    setting = Text(f"monitor(OpenAI(), stall_timeout_s={result.timeout_s:g})", style="bold cyan")
    heading = Text("A stall timeout: ", style="bold")
    if result.gap_s is None:
        said = f" had nothing to end, since the answer did not stop for {result.timeout_s:g} s."
        _print(console, "", Text.assemble(heading, setting, said))
        return
    _print(
        console,
        "",
        Text.assemble(
            heading,
            f"after {result.shown} tokens the server sent nothing for {result.gap_s:.1f} s. ",
            setting,
            " ended the read with StreamStalled, and the second server continued the answer, which was complete after "
            f"{result.complete_s:.1f} s. Without the timeout the answer stops for {without.gap_s:.1f} s and is "
            f"complete after {without.complete_s:.1f} s (simulated).",
        ),
    )


def show_next(console: Console) -> None:
    """Print where to go on."""
    _print(
        console,
        "",
        Text.assemble(
            ("Next: ", "bold"),
            ("midstream probe URL", "bold cyan"),
            " tries your own server; ",
            ("client = monitor(OpenAI())", "bold cyan"),
            " monitors it from your code; ",
            ("midstream proxy --upstream URL", "bold cyan"),
            " monitors it for clients in Node and any other language; ",
            (SERVE, "bold cyan"),
            " runs the server of this demo.",
        ),
    )


def _figures(before: ActResult, after: ActResult) -> Iterator[tuple[str, tuple[str, str]]]:
    both = (before, after)

    def pair(texts: Sequence[str]) -> tuple[str, str]:
        return texts[0], texts[1]

    yield "frozen streams", pair([f"{len(seen.frozen)} of {len(seen.load.records)}" for seen in both])
    yield (
        "frozen time, all streams",
        pair([seconds(sum(r.frozen_s for r in seen.load.records), 1) for seen in both]),
    )
    yield "longest gap", pair([seconds(_longest(seen), 1) for seen in both])
    yield "preemptions, by the server's count", pair([_number(seen.preemptions) for seen in both])
    yield "time to first token, median", pair([seconds(median(seen.first_content_s), 1) for seen in both])
    yield "time to first token, worst", pair([seconds(seen.first_content_s[-1], 1) for seen in both])
    yield "all answers complete after", pair([seconds(seen.lasted_s, 1) for seen in both])
    yield "tokens per second, all streams", pair([f"{seen.tokens / seen.lasted_s:.0f}" for seen in both])


def _number(reading: MetricReading) -> str:
    return "unknown" if reading.value is None else f"{reading.value:.0f}"


def _longest(seen: ActResult) -> float:
    return max((record.max_gap_s or 0.0 for record in seen.load.records), default=0.0)


def _happened(seen: ActResult) -> str:
    gaps = sorted(record.max_gap_s or 0.0 for record in seen.frozen)
    count = len(seen.load.records)
    if not gaps:
        return f"no answer had a gap of {seen.load.act.freeze_after_s:g} s; the longest gap was {_longest(seen):.2f} s."
    spread = f"{gaps[0]:.1f} s" if len(gaps) == 1 else f"{gaps[0]:.1f} to {gaps[-1]:.1f} s"
    return (
        f"{len(gaps)} of {count} answers stopped in mid-sentence, for {spread}: the server had admitted more than its "
        "KV cache holds, and preempted some to finish others. Each got HTTP 200, a finish reason and every token, so "
        "no error rate shows it."
    )


def _closing(before: ActResult, after: ActResult) -> Iterator[Text]:
    rate = (after.tokens / after.lasted_s) / (before.tokens / before.lasted_s) - 1
    waited = after.first_content_s[-1] - before.first_content_s[-1]
    if before.frozen and not after.frozen:
        what = (
            f"no stream froze. The cost: throughput changed by {rate:+.0%}, and the last request waited up to "
            f"{waited:.1f} s longer for its first token. Every tool shows that wait; none shows a stream that stops."
        )
    else:
        what = (
            f"{len(before.frozen)} streams froze before, {len(after.frozen)} after; throughput: {rate:+.0%}."
        )
    yield Text.assemble(("Result: ", "bold"), what)


def _print(console: Console, *lines: str | Text) -> None:
    for line in lines:
        # Lines for a pipe are whole; on a terminal they break between words.
        console.print(line, markup=False, soft_wrap=not console.is_terminal)


def _heading(console: Console, title: str, rest: str) -> None:
    _print(console, Text.assemble((title, "bold"), f"  {rest}"))


def _cells(user: User, record: StreamRecord) -> Iterator[Text]:
    froze = "red" if record.freezes else ""
    yield Text(str(user.number))
    yield Text(seconds(record.time_to_first_content_s))
    yield Text(f"{seconds(record.max_gap_s)} at {seconds(record.max_gap_at_s, 1)}", style=froze)
    yield Text(str(record.freezes), style=froze)
    yield Text(record.outcome.value)
    yield Text(", ".join(reason or ABSENT for reason in record.finish_reasons) or ABSENT)
    yield Text(f"{record.output_tokens or '?'}/{record.token_limit or '?'}")
