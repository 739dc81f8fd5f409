"""A record goes into the journal and comes back as it was."""

from __future__ import annotations

import hashlib
import sqlite3
from dataclasses import fields, replace
from typing import Any, get_type_hints

import pytest
from hypothesis import given

from midstream import FreezeSpan, StreamRecord
from midstream.journal._kinds import LARGEST, LATEST, LONGEST_S, DamagedRowError
from midstream.journal._rows import COLUMNS, reader_of, row_of
from midstream.journal._schema import STEPS, upgrade
from support.any_records import RECORDS
from support.records import a_record


def through_sqlite(*records: StreamRecord) -> list[StreamRecord]:
    """Write records into a database in memory, and read them again."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    upgrade(connection)
    insert = f"INSERT INTO streams ({', '.join(COLUMNS)}) VALUES ({', '.join('?' * len(COLUMNS))})"  # noqa: S608
    connection.executemany(insert, [row_of(record) for record in records])
    names = list(COLUMNS)
    rows = connection.execute(f"SELECT {', '.join(names)} FROM streams ORDER BY id").fetchall()  # noqa: S608
    connection.close()
    return [reader_of(names)(row) for row in rows]


@given(RECORDS)
def test_any_record_comes_back_as_it_was(record: StreamRecord) -> None:
    """Every field, of every type that it can have."""
    (back,) = through_sqlite(record)

    assert back == record
    assert [type(getattr(back, field.name)) for field in fields(back)] == [
        type(getattr(record, field.name)) for field in fields(record)
    ]


@pytest.mark.parametrize("name", [field.name for field in fields(StreamRecord) if "None" in str(field.type)])
def test_what_is_not_known_stays_unknown_and_zero_stays_zero(name: str) -> None:
    """None is no 0, and the empty string is not None."""
    if name == "finish_reasons":
        values: list[Any] = [(), (None,), ("",), (None, "stop")]
    else:
        text = "str" in str(get_type_hints(StreamRecord)[name])
        values = [None, "text" if "phase" in name else "" if text else 0]
    records = [a_record(**{name: value}) for value in values]

    assert [getattr(back, name) for back in through_sqlite(*records)] == values


def test_columns_are_the_fields_of_the_record() -> None:
    """A field that is added to the record needs a column, and a step that adds it to journals which are there."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    upgrade(connection)
    columns = {row[1]: row[2] for row in connection.execute("PRAGMA table_info(streams)")}
    connection.close()

    assert list(COLUMNS) == [field.name for field in fields(StreamRecord)]
    assert columns == {"id": "INTEGER", **{name: kind.sql for name, kind in COLUMNS.items()}}
    assert {name for name, kind in COLUMNS.items() if kind.optional} == {
        field.name for field in fields(StreamRecord) if str(field.type).endswith("| None")
    }


def test_first_version_is_as_it_was_published() -> None:
    """Steps are only ever added: journals of that version are out there."""
    text = "\n".join(STEPS[0])
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == "e7f9fa2508c304d4"


def test_count_that_no_count_can_be_is_not_known() -> None:
    """A server may claim anything; true numbers of tokens are far below 2 to the power of 53."""
    (back,) = through_sqlite(a_record(output_tokens=10**30, input_tokens=-1, token_limit=LARGEST))

    assert (back.output_tokens, back.input_tokens, back.token_limit) == (None, None, LARGEST)


def test_what_a_clock_may_do_is_no_damage() -> None:
    """Wall clocks are set back, and differences of two readings come out a hair below 0."""
    record = a_record(clock_jump_s=-86_400.0, max_gap_at_s=-2.0, held_s=-1e-9, started_at=LATEST)

    assert through_sqlite(record) == [record]


def test_half_a_surrogate_pair_in_a_name_is_replaced() -> None:
    """JSON can say it, and SQLite cannot hold it; in a finish reason, which is kept as JSON, it stays."""
    (back,) = through_sqlite(a_record(response_model="m\ud800x", finish_reasons=("\ud800",)))

    assert (back.response_model, back.finish_reasons) == ("m?x", ("\ud800",))


@pytest.mark.parametrize(
    "impossible",
    [
        {"duration_s": float("nan")},
        {"frozen_s": float("inf")},
        {"duration_s": None},
        {"duration_s": -5.0},
        {"started_at": -1.0},
        {"max_gap_s": 2 * LONGEST_S},
        {"freeze_spans": (FreezeSpan(0.0, -1.0, "text", False, False, False),)},
        {"chunks": 2**70},
        {"freezes": -1},
        {"request_model": None},
        {"outcome": None, "freezes": "many"},
    ],
)
def test_record_that_midstream_never_makes_is_refused(impossible: dict[str, Any]) -> None:
    """It must not spoil the records that are written with it."""
    with pytest.raises((TypeError, ValueError, AttributeError, OverflowError)):
        row_of(replace(a_record(), **impossible))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("started_at", None),
        ("started_at", "yesterday"),
        ("started_at", -1e18),
        ("started_at", 1e18),
        ("started_at", 2 * LATEST),
        ("duration_s", float("inf")),
        ("duration_s", 1e300),
        ("duration_s", -5.0),
        ("max_gap_s", -1.0),
        ("clock_jump_s", float("-inf")),
        ("freezes", -1),
        ("chunks", 2**63 - 1),
        ("output_tokens", -7),
        ("output_tokens", 2**63 - 1),
        ("request_model", b"\xff"),
        ("request_model", None),
        ("attributes", "[]"),
        ("attributes", '{"team": 1}'),
        ("attributes", "{" * 100_000),
        ("finish_reasons", '{"a": 1}'),
        ("finish_reasons", "[1]"),
        ("outcome", "great"),
        ("outcome", None),
        ("max_gap_phase", "singing"),
        ("suspected", "you"),
        ("max_gap_open", 2),
        ("chunks", 1.5),
        ("input_tokens", "many"),
        ("freeze_spans", '[{"at_s": 1}]'),
        ("freeze_spans", "[7]"),
        (
            "freeze_spans",
            '[{"at_s":1.0,"length_s":-3.0,"phase":"text","hidden":false,"shared":false,"open":false}]',
        ),
        (
            "freeze_spans",
            '[{"at_s":1.0,"length_s":Infinity,"phase":"text","hidden":false,"shared":false,"open":false}]',
        ),
    ],
)
def test_row_that_holds_what_no_record_can_is_damaged(name: str, value: object) -> None:
    """Whatever a file says, a record is never made of something else."""
    names = list(COLUMNS)
    row: list[Any] = list(row_of(a_record()))
    row[names.index(name)] = value

    with pytest.raises(DamagedRowError):
        reader_of(names)(row)


def test_journal_of_an_older_version_lacks_what_came_later() -> None:
    """Fields that have a default or may be unknown do then; without the others there is no record."""
    names = [name for name in COLUMNS if name not in {"freeze_spans", "wire_gap_s"}]
    row = [
        value for name, value in zip(COLUMNS, row_of(a_record(wire_gap_s=1.0)), strict=True) if name in names
    ]

    assert reader_of(names)(row) == a_record(wire_gap_s=None, freeze_spans=())
    with pytest.raises(KeyError, match="outcome"):
        reader_of([name for name in COLUMNS if name != "outcome"])
