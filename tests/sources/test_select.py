"""Which streams of a journal are meant: moments, spans, conditions."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

import pytest

from midstream.journal import Journal
from midstream.sources.select import (
    SelectionError,
    condition,
    contents_from,
    journal_path,
    moment,
    span,
)
from support.records import a_record

NOW = 1_000_000.0


@pytest.mark.parametrize(
    ("text", "ago"),
    [
        ("90s", 90),
        ("30m", 1800),
        ("2h", 7200),
        ("1.5h", 5400),
        ("7d", 604800),
        ("1w ago", 604800),
        ("now", 0),
    ],
)
def test_so_long_ago_counts_from_now(text: str, ago: float) -> None:
    """With or without the word."""
    assert moment(text, NOW) == NOW - ago


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-01T14:30:00Z",
        "2026-11-01T14:30:00+00:00",
        "2026-11-01T15:30:00+01:00",
        "2026-11-01T14:30:00z",
    ],
)
def test_a_time_in_iso_is_that_time(text: str) -> None:
    """Python 3.10 does not know Z by itself."""
    assert moment(text, NOW) == datetime(2026, 11, 1, 14, 30, tzinfo=timezone.utc).timestamp()


def test_a_time_without_an_offset_is_local() -> None:
    """As a person reads it off a clock."""
    assert moment("2026-11-01", NOW) == datetime(2026, 11, 1).timestamp()  # noqa: DTZ001 - that is the point


@pytest.mark.parametrize("text", ["", "yesterday", "2 hours", "-3h", "2026-13-01", "h", "1e3s"])
def test_what_is_no_moment_says_how_to_write_one(text: str) -> None:
    """One sentence with examples."""
    with pytest.raises(SelectionError, match="is not a valid time; write 30m, 2h or 7d"):
        moment(text, NOW)


def test_a_span_without_time_in_it_is_refused() -> None:
    """Ends the wrong way round select nothing, and nobody would notice."""
    assert span("2h", "1h", NOW) == (NOW - 7200, NOW - 3600)
    assert span(None, None, NOW) == (None, None)
    with pytest.raises(SelectionError, match="'1h' is not before '2h'"):
        span("1h", "2h", NOW)


def test_conditions_are_about_names_of_ours_and_attributes() -> None:
    """`!=` is also true where there is no such attribute."""
    record = a_record(request_model="big=er", server_port=8000, attributes={"team": "search"})

    for text in (
        "model=big=er",
        "server=api.example.com",
        "port=8000",
        "team=search",
        "team!=ads",
        "tier != gold",
        "phase!=reasoning",
    ):
        assert condition(text)(record), text
    for text in ("model=big", "team=ads", "team!=search", "tier=gold", "outcome=timeout"):
        assert not condition(text)(record), text


@pytest.mark.parametrize("text", ["", "model", "=x", "model=", "a b=c"])
def test_what_is_no_condition_is_said(text: str) -> None:
    """One sentence."""
    with pytest.raises(SelectionError, match="is not NAME=VALUE"):
        condition(text)


def test_records_are_chosen_by_all_of_it(tmp_path: Path) -> None:
    """From the first moment on and before the second, and every condition holds."""
    journal = Journal(tmp_path / "j.db", max_days=None)
    for index, model in enumerate(["a", "b", "a", "a"]):
        journal.write(a_record(started_at=datetime(2026, 11, 1 + index).timestamp(), request_model=model))  # noqa: DTZ001
    journal.flush()
    journal.close()

    chosen = contents_from(tmp_path / "j.db", "2026-11-01", "2026-11-04", ["model=a"]).records

    assert [datetime.fromtimestamp(each.started_at).day for each in chosen] == [1, 3]  # noqa: DTZ006
    assert contents_from(tmp_path / "j.db", None, None, []).skipped == 0


def test_the_journal_of_the_environment_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """And without one there is a sentence."""
    monkeypatch.setenv("MIDSTREAM_JOURNAL", "/somewhere/j.db")
    assert journal_path(None) == Path("/somewhere/j.db")
    assert journal_path(Path("other.db")) == Path("other.db")
    monkeypatch.delenv("MIDSTREAM_JOURNAL")
    for unset in (None, Path("")):
        with pytest.raises(ValueError, match="no journal is named; give --journal FILE"):
            journal_path(unset)
