"""What a report says of ten streams that can be counted by hand."""

from __future__ import annotations

import io
import re
from datetime import timezone
from typing import Any

import pytest
from rich.console import Console

from midstream.advice.threshold import threshold_of
from midstream.report.grouping import grouped, name_of
from midstream.report.summary import Quantiles, summarise
from midstream.report.tables import Table, tables
from midstream.report.terminal import show
from midstream.report.went_on import went_on
from midstream.report.words import in_words
from midstream.stream.model import Outcome, StreamRecord
from support.records import a_record
from support.report_records import AT, HOSTILE_SERVER, hostile, span, ten


def cells(table: Table) -> dict[str, dict[str, str]]:
    """A table as its reader takes it in: by row and column."""
    return {row.name: dict(zip(table.columns, row.cells, strict=True)) for row in table.rows}


def by_title(by: str = "model", top: int = 20) -> dict[str, Table]:
    return {table.title: table for table in tables(grouped(ten(), by, top))}


def test_a_summary_counts_what_can_be_counted() -> None:
    """Eight streams show a gap: not the one that came in a burst, and not the one that failed at once."""
    total = summarise(ten())
    assert total.streams == 10
    assert total.buffered == 1
    assert total.gap == Quantiles(8, 0.3, 12.0, 12.0, 12.0)
    assert (total.froze.count, total.froze.total) == (2, 8)
    assert total.froze.low == pytest.approx(0.0715, abs=1e-4)
    assert total.froze.high == pytest.approx(0.5907, abs=1e-4)
    assert (total.freezes, total.frozen_s, total.never_ended, total.hidden) == (3, 24.0, 1, 1)
    assert (total.shared.count, total.shared.total) == (2, 3)
    assert total.suspected == {"unknown": 2}
    assert total.first_content == Quantiles(9, 0.4, 8.9, 8.9, 8.9)
    assert total.outcomes == {"completed": 8, "cancelled": 1, "error": 1}
    assert (total.finished, total.length.count, total.length_without_limit) == (8, 2, 1)
    assert (total.limit_hits.count, total.limits) == (1, 5)
    assert total.limit_used == Quantiles(5, 0.5, 1.0, 1.0, 1.0)
    assert total.output_tokens == Quantiles(8, 100.0, 400.0, 400.0, 400.0)


def test_of_no_streams_nothing_is_known() -> None:
    nothing = summarise([])
    assert nothing.gap == Quantiles(0, None, None, None, None)
    assert nothing.froze.value is None
    assert {
        cell for table in tables(grouped([], "model", 3)) for row in table.rows for cell in row.cells
    } == set()


def test_unknown_numbers_are_dashes_and_never_zero() -> None:
    """A stream of which nothing is known but that it failed."""
    failed = a_record(outcome=Outcome.ERROR, finish_reasons=(), output_tokens=None, usage_complete=False)
    shown = {table.title: cells(table)["m"] for table in tables(grouped([failed], "model", 20))}
    assert shown["Longest gap of each stream"] == {
        "streams": "1", "seen in": "0", "p50": "-", "p95": "-", "p99": "-", "worst": "-",
    }  # fmt: skip
    assert set(shown["Freezes"].values()) == {"-"}
    assert shown["Answers"] == {"first\ncontent\np50": "-", "first\ncontent\np95": "-", "error": "1"}
    assert list(shown["Limits"].values()) == ["0", "-", "-", "0", "-", "-", "-", "-"]


def test_the_length_rate_counts_finished_answers_only() -> None:
    """Ten ended with stop, two by length, one with tool_calls at its limit; seven did not finish."""
    ends = [
        *[(Outcome.COMPLETED, "stop", False)] * 10,
        *[(Outcome.COMPLETED, "length", True)] * 2,
        (Outcome.COMPLETED, "tool_calls", True),
        *[(Outcome.NO_FINISH, None, False)] * 3,
        *[(Outcome.CANCELLED, None, False)] * 2,
        *[(Outcome.ERROR, None, False)] * 2,
    ]
    records = [
        a_record(outcome=outcome, finish_reasons=(reason,) if reason else (), limit_hit=hit, token_limit=300)
        for outcome, reason, hit in ends
    ]
    limits = {table.title: table for table in tables(grouped(records, "model", 20))}["Limits"]
    assert cells(limits)["m"]["by\nlength"] == "2 of 13"
    assert cells(limits)["m"]["hit\nlimit"] == "3 of 13"
    assert limits.notes[0] == "7 streams did not finish, and are not among those that ended by length."


def test_few_streams_are_counted_and_many_are_a_percentage() -> None:
    few = by_title()["Freezes"]
    assert cells(few)["all"]["froze"] == "2 of 8"
    assert cells(few)["all"]["share"] == "7.1 to 59 %"
    many = [*ten(), *(a_record(max_gap_s=0.1) for _ in range(92))]
    freezes = {table.title: table for table in tables(grouped(many, "operation", 20))}["Freezes"]
    assert cells(freezes)["chat"]["share"] == "2 % (0.55 to 7 %)"


def test_tables_are_by_model_the_longest_frozen_first() -> None:
    shown = by_title()
    assert list(shown) == [
        "Longest gap of each stream", "Freezes", "Attribution of freezes", "Answers", "Limits",
    ]  # fmt: skip
    assert list(cells(shown["Freezes"])) == ["big", "small", "all"]
    assert cells(shown["Freezes"])["big"] == {
        "froze": "2 of 4", "share": "15 to 85 %", "freezes": "3", "time\nfrozen": "24.0 s", "never\nended": "1",
    }  # fmt: skip
    assert cells(shown["Attribution of freezes"])["big"] == {"hidden": "1", "shared": "2 of 3"}
    assert cells(shown["Limits"])["small"] == {
        "finished": "4", "by\nlength": "0 of 4", "hit\nlimit": "0 of 4", "with\nlimit": "4",
        "limit\nused\np50": "50 %", "limit\nused\np95": "50 %", "tokens\np50": "100", "tokens\np95": "100",
    }  # fmt: skip
    assert shown["Longest gap of each stream"].notes == (
        (
            "Left out, since no gap can be measured in them: 1 that came in one burst, which hides any gap and 1 "
            "with fewer than two pieces of output."
        ),
        "The p99 of fewer than 100 streams is the longest of them.",
    )


def test_streams_are_told_apart_by_an_attribute_and_what_lacks_it_is_unknown() -> None:
    gaps = by_title("team")["Longest gap of each stream"]
    assert {name: row["streams"] for name, row in cells(gaps).items()} == {
        "unknown": "6", "search": "4", "all": "10",
    }  # fmt: skip


def test_what_has_no_row_is_taken_together() -> None:
    records = [a_record(request_model=f"m{n}", max_gap_s=0.1) for n in range(5)]
    gaps = tables(grouped(records, "model", 2))[0]
    assert {row.name: row.cells[0] for row in gaps.rows} == {
        "m0": "1",
        "m1": "1",
        "3 others": "3",
        "all": "5",
    }


def test_a_server_is_a_host_with_its_port() -> None:
    assert name_of(a_record(), "server") == "api.example.com:8000"
    assert name_of(a_record(server_address="::1"), "server") == "[::1]:8000"
    assert name_of(a_record(server_address="", server_port=None), "server") == "unknown"


def test_suspicions_are_shown_where_a_server_gives_reason_for_them() -> None:
    stalled = [
        a_record(max_gap_s=6.0, freezes=1, frozen_s=6.0, suspected=word) for word in ("stall", "withheld")
    ]
    whose = {table.title: table for table in tables(grouped(stalled, "model", 20))}["Attribution of freezes"]
    assert cells(whose)["m"] == {
        "hidden": "0", "shared": "0 of 2", "stall": "1 of 2", "withheld": "1 of 2", "unknown": "0 of 2",
    }  # fmt: skip


def test_the_words_say_what_the_numbers_are() -> None:
    assert in_words(ten(), timezone.utc) == (
        "10 streams begun from 2026-09-21 14:13:20 to 2026-09-21 14:13:29 (UTC), of 2 models at 1 server.",
        (
            "2 of 8 streams froze (a gap of 5 s or more), 3 times in all, for 24.0 s together; with 95 % confidence, "
            "7.1 to 59 % of all do. The longest gap was 12.0 s, and 1 stream ended while frozen."
        ),
        "2 of the 2 streams that froze were of model big at api.example.com:8000.",
        (
            "In 2 of 3 freezes the server's other streams had a gap, too. During 1 of 3 freezes another stream of "
            "the same server went on. The client cannot see why: look at the server's counters of preempted requests "
            "at those moments, and ask `midstream advise` for a limit or a cap."
        ),
        (
            "The server also froze 1 time while the program was busy and did not wait for it; no answer was delayed "
            "by that."
        ),
        ("1 answer came in one burst, in which no gap can be measured: look for a proxy that buffers."),
        "8 of 10 completed; 1 was cancelled, 1 failed.",
        (
            "2 of 8 finished answers ended by length; half of the answers used 50 % of their token limit or less, and "
            "95 % of them 100 % or less."
        ),
    )


def test_the_words_never_claim_a_cause_that_a_client_cannot_see() -> None:
    said = " ".join(in_words(ten())).lower()
    assert "was preempted" not in said
    assert said.count("preempt") == 1  # the counters to look at
    assert "kv" not in said


def test_no_freeze_says_how_sure_that_is() -> None:
    said = in_words([a_record(max_gap_s=0.1 * n) for n in range(1, 21)])
    assert said[1] == (
        "None of the 20 streams in which a gap can be measured froze: with 95 % confidence, no more than 16 % of all "
        "do. The longest gap was 2.00 s."
    )


@pytest.mark.parametrize(
    ("thresholds", "froze", "value", "words"),
    [
        ([], False, 5.0, "nothing reached 5 s, from which a gap is a freeze"),
        ([5.0, 5.0], False, 5.0, "nothing reached 5 s, from which a gap is a freeze"),
        ([2.0, 2.0], True, 2.0, "a gap of 2 s is a freeze"),
        ([2.0, None], True, 2.0, "a gap of 2 s is a freeze"),
        ([10.0, 0.5, 0.5], True, None, "these streams were watched with several thresholds: 0.5, 10 s"),
        ([None, None], False, None, "no gap of these streams counted as a freeze"),
        ([None], True, None, "the threshold is not known"),
    ],
)
def test_the_threshold_is_the_one_that_the_records_name(
    thresholds: list[float | None], froze: bool, value: float | None, words: str
) -> None:
    """A journal of an older version names none; with freezes switched off there is none."""
    found = threshold_of(
        [
            a_record(max_gap_s=12.0, freezes=int(froze), frozen_s=12.0 * froze, freeze_after_s=each)
            for each in thresholds
        ]
    )
    assert (found.value_s, found.words) == (value, words)


def printed(width: int, *, terminal: bool) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=terminal, markup=False, highlight=False)
    show(console, in_words([*ten(), hostile()]), tables(grouped([*ten(), hostile()], "server", 20)))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize("width", [80, 200])
def test_a_terminals_width_is_enough(width: int) -> None:
    """No line is longer, no number is cut."""
    lines = printed(width, terminal=False).splitlines()
    if width == 80:
        rows = [line for line in lines if line.startswith(("api.", "all"))]
        assert max(map(len, rows)) <= 80
    assert not [line for line in lines if "…" in line]
    assert any("7.1 to 59 %" not in line and "3 of 9" in line for line in lines)


def test_names_of_others_cannot_steer_a_terminal() -> None:
    shown = printed(80, terminal=True)
    assert "\x1b[31m\x00" not in shown
    assert "\u202e" not in shown
    assert HOSTILE_SERVER not in shown
    assert "<b>evil</b>.example.com" in printed(200, terminal=False)


def test_a_report_starts_where_the_first_stream_began() -> None:
    assert in_words([a_record(started_at=AT)], timezone.utc)[0] == (
        "1 stream at 2026-09-21 14:13:20 (UTC), of 1 model at 1 server."
    )


def test_only_the_cells_that_tell_of_a_freeze_stand_out() -> None:
    """One of two models froze; the line of all is bold as it is."""
    shown = by_title()
    freezes = shown.pop("Freezes")
    alarming = {
        row.name: [column for n, column in enumerate(freezes.columns) if freezes.alarming(row, n)]
        for row in freezes.rows
    }
    assert alarming == {"big": ["froze", "time\nfrozen"], "small": [], "all": []}
    assert not any(
        table.alarming(row, n)
        for table in shown.values()
        for row in table.rows
        for n in range(len(row.cells))
    )


def test_a_zero_does_not_stand_out() -> None:
    """A freeze in an answer that came in one burst otherwise: the stream is not among those that count."""
    froze = [a_record(request_model="m", freezes=1, frozen_s=6.0, buffered=True), a_record(max_gap_s=0.1)]
    freezes = {table.title: table for table in tables(grouped(froze, "model", 20))}["Freezes"]
    (row,) = freezes.rows
    assert (row.cells[0], row.cells[3]) == ("0 of 1", "6.00 s")
    assert [freezes.alarming(row, n) for n in range(len(row.cells))] == [False, False, False, True, False]


def test_a_terminal_shows_only_those_cells_in_red() -> None:
    red = re.findall(r"\x1b\[31m *([^\x1b]*?) *\x1b", printed(120, terminal=True))
    assert red == ["2 of 8", "24.0 s", "1 of 1", "6.50 s"]


@pytest.mark.parametrize(
    ("freezes", "thresholds", "note"),
    [
        (1, [5.0], "froze: a gap of 5 s or more."),
        (1, [2.0, 1.0], "froze: these streams were watched with several thresholds: 1, 2 s."),
        (0, [5.0], None),
    ],
)
def test_a_table_of_freezes_says_from_when_a_gap_is_one(
    freezes: int, thresholds: list[float], note: str | None
) -> None:
    records = [
        a_record(max_gap_s=6.0, freezes=freezes, frozen_s=6.0, freeze_after_s=each) for each in thresholds
    ]
    shown = tables(grouped(records, "model", 20), threshold_of(records))
    told = {table.title: table for table in shown}["Freezes"]
    assert [each for each in told.notes if each.startswith("froze: ")] == ([note] if note else [])


def froze_at(at_s: float, *, shared: bool = False, **more: Any) -> StreamRecord:
    """A stream of thirty seconds, content from the first on, that froze for six."""
    known: dict[str, Any] = {
        "duration_s": 30.0,
        "time_to_first_content_s": 1.0,
        "max_gap_s": 6.0,
        "freezes": 1,
        "frozen_s": 6.0,
        "shared": int(shared),
        "freeze_spans": (span(at_s, 6.0, shared=shared),),
    }
    return a_record(**{**known, **more})


SMOOTH = {"duration_s": 30.0, "time_to_first_content_s": 1.0, "max_gap_s": 0.2}


@pytest.mark.parametrize(
    ("others", "count"),
    [
        ([], 0),
        ([a_record(**SMOOTH)], 1),
        ([a_record(**SMOOTH, server_address="elsewhere")], 0),
        ([a_record(**SMOOTH, started_at=9.5)], 0),  # its content began in the midst of the freeze
        ([a_record(**{**SMOOTH, "duration_s": 15.0})], 0),  # it ended in the midst of it
        ([a_record(**SMOOTH, buffered=True)], 0),
        ([a_record(**SMOOTH, hidden=1, freeze_spans=(span(12.0, 6.0, hidden=True),))], 0),
        ([a_record(**SMOOTH, hidden=1, freeze_spans=(span(20.0, 6.0, hidden=True),))], 1),
        ([a_record(**SMOOTH, hidden=1)], 0),  # nobody knows when
        ([froze_at(3.0)], 2),  # each went on while the other stood still
        ([froze_at(12.0)], 0),
    ],
)
def test_that_others_went_on_is_said_only_if_one_was_there_all_the_while(
    others: list[StreamRecord], count: int
) -> None:
    """The freeze is from 10 to 16 s."""
    assert went_on([froze_at(10.0), *others]) == count


@pytest.mark.parametrize(
    ("records", "said"),
    [
        (
            [froze_at(10.0)],
            (
                "Whether only that stream froze or the whole server is not known: no other stream is known to have "
                "gone on there meanwhile. "
            ),
        ),
        (
            [froze_at(10.0), a_record(**SMOOTH)],
            "During that freeze another stream of the same server went on. ",
        ),
        (
            [froze_at(10.0), a_record(**SMOOTH), froze_at(10.0, started_at=100.0)],
            (
                "During 1 of 2 freezes another stream of the same server went on. For 1 it is not known whether the "
                "whole server stood still: no other stream is known to have gone on there meanwhile. "
            ),
        ),
        (
            [froze_at(10.0), froze_at(10.0, shared=True, started_at=100.0)],
            (
                "In 1 of 2 freezes the server's other streams had a gap, too. For 1 it is not known whether the "
                "whole server stood still: no other stream is known to have gone on there meanwhile. "
            ),
        ),
    ],
)
def test_what_was_shared_what_was_not_and_what_nobody_can_tell_are_told_apart(
    records: list[StreamRecord], said: str
) -> None:
    assert [each for each in in_words(records) if each.startswith(f"{said}The client cannot see why: ")]
