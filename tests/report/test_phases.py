"""Gaps and freezes by phase."""

from __future__ import annotations

from midstream.report.document import document
from midstream.report.phases import PhaseSummary, by_phase, phase_sentence, phase_table
from midstream.report.sections import sections
from midstream.report.summary import Quantiles
from midstream.report.words import in_words
from midstream.stream.model import FreezeSpan, Phase, StreamRecord
from support.records import a_record
from support.report_records import ten


def froze(phase: Phase, *lengths: float, after_s: float = 5.0, hidden: float | None = None) -> StreamRecord:
    """A stream with freezes of these lengths in one phase, and one that its caller did not wait for."""
    spans = [FreezeSpan(10.0 * n, length, phase, False, False, False) for n, length in enumerate(lengths)]
    if hidden is not None:
        spans.append(FreezeSpan(90.0, hidden, phase, True, False, False))
    return a_record(
        max_gap_s=max(lengths),
        max_gap_phase=phase,
        freezes=len(lengths),
        frozen_s=sum(lengths),
        hidden=int(hidden is not None),
        freeze_spans=tuple(spans),
        freeze_after_s=after_s,
    )


RECORDS = [
    froze("text", 7.0, 6.0, hidden=30.0),
    froze("reasoning", 90.0, after_s=60.0),
    a_record(max_gap_s=40.0, max_gap_phase="reasoning", freeze_after_s=60.0),
    a_record(max_gap_s=0.5, max_gap_phase="text", freeze_after_s=5.0),
    a_record(max_gap_s=2.0, max_gap_phase="tool_call", freeze_after_s=10.0),
]


def test_each_gap_and_each_freeze_counts_in_the_phase_in_which_it_began() -> None:
    """A hidden freeze is not among the freezes, as everywhere in the report."""
    assert by_phase(RECORDS) == (
        PhaseSummary("text", Quantiles(2, 0.5, 7.0, 7.0, 7.0), (5.0,), 2, 13.0),
        PhaseSummary("reasoning", Quantiles(2, 40.0, 90.0, 90.0, 90.0), (60.0,), 1, 90.0),
        PhaseSummary("tool_call", Quantiles(1, 2.0, 2.0, 2.0, 2.0), (10.0,), 0, 0),
    )


def test_the_table_shows_a_pause_in_reasoning_beside_one_in_text() -> None:
    table = phase_table(RECORDS)

    assert table is not None
    assert [(row.name, row.cells, row.frozen) for row in table.rows] == [
        ("text", ("2", "0.50 s", "7.00 s", "7.00 s", "5 s", "2", "13.0 s"), True),
        ("reasoning", ("2", "40.0 s", "90.0 s", "90.0 s", "60 s", "1", "90.0 s"), True),
        ("tool call", ("1", "2.00 s", "2.00 s", "2.00 s", "10 s", "0", "0 s"), False),
    ]


def test_a_report_of_text_alone_has_no_table_of_phases() -> None:
    """There is nothing that it would add."""
    text = [record for record in ten() if record.max_gap_phase in ("text", None)]

    assert phase_table(text) is None
    assert phase_sentence(text) == ""
    assert all(table.by != "phase" for section in sections(text, ["model"], 5) for table in section.tables)


def test_the_sentence_names_the_phases_of_the_freezes() -> None:
    sentence = "By phase: 2 freezes of 13.0 s together began in text, 1 freeze of 90.0 s together began in reasoning."

    assert phase_sentence(RECORDS) == sentence
    assert sentence in in_words(RECORDS)
    assert phase_sentence([froze("text", 7.0), RECORDS[2]]) == ""


def test_the_page_and_the_document_have_the_phases() -> None:
    page = sections(RECORDS, ["model"], 5)
    phases = document(RECORDS, ["model"])["phases"]

    assert [section.title for section in page for table in section.tables if table.by == "phase"] == [
        "How long"
    ]
    assert [(each["phase"], each["freezes"], each["frozen_s"]) for each in phases] == [
        ("text", 2, 13.0),
        ("reasoning", 1, 90.0),
        ("tool_call", 0, 0),
    ]
