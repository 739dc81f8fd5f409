"""What a report says of a fleet, where only metrics are known."""

from __future__ import annotations

import math
from datetime import timezone

import pytest

from midstream.report.fleet import at, fleet_in_words, fleet_tables, froze_of
from midstream.report.fleet_document import fleet_document
from midstream.report.tables import Table
from midstream.sources.fleet import Fleet, Histogram, Summary, classic
from midstream.telemetry.instruments import MODEL
from support.report_records import AT, HOSTILE

GAPS = classic([(1.0, 50), (5.0, 90), (10.0, 98), (math.inf, 100)], 300.0)
BIG = Summary(
    {MODEL: "big"},
    ended={("completed", "stop"): 80.2, ("completed", "length"): 19.8, ("timeout", "none"): 2.0},
    freezes=12.1,
    hidden_freezes=1.0,
    frozen_s=90.0,
    limit_hits=21.0,
    buffered=2.0,
    max_gap=GAPS,
    first_content=classic([(0.5, 90), (1.0, 102)]),
    output_tokens=classic([(100.0, 60), (200.0, 100)]),
    limit_used=classic([(0.5, 50), (1.0, 100)]),
)
HOSTILE_ONE = Summary({MODEL: HOSTILE})
FLEET = Fleet(AT, AT + 3600, (HOSTILE_ONE, BIG), notes=("the server restarted in this time",))


def cells(table: Table) -> dict[str, dict[str, str]]:
    return {row.name: dict(zip(table.columns, row.cells, strict=True)) for row in table.rows}


def shown() -> dict[str, dict[str, dict[str, str]]]:
    return {table.title: cells(table) for table in fleet_tables(FLEET, "model", MODEL, 20, 5.0)}


def test_a_fleet_is_tabulated_from_its_histograms() -> None:
    assert list(shown()) == ["Longest gap of each stream", "Freezes", "Answers", "Limits"]
    assert shown()["Longest gap of each stream"]["big"] == {
        "streams": "102", "seen in": "100", "p50": "1.00 s", "p95": "8.12 s", "p99": "over 10.0 s",
    }  # fmt: skip
    assert shown()["Freezes"]["big"] == {
        "froze": "10 of 100", "share": "10 % (5.5 to 17 %)", "freezes": "12", "time\nfrozen": "90.0 s", "hidden": "1",
        "one\nburst": "2",
    }  # fmt: skip
    assert shown()["Answers"]["big"] == {
        "first\ncontent\np50": "0.28 s", "first\ncontent\np95": "0.79 s", "completed": "100", "timeout": "2",
    }  # fmt: skip
    assert shown()["Limits"]["big"]["by\nlength"] == "20 %"
    assert shown()["Limits"]["big"]["hit\nlimit"] == "21"


def test_a_metric_that_is_not_there_is_a_dash_and_never_zero() -> None:
    for table in shown().values():
        assert set(table[HOSTILE].values()) == {"-"}
    unknown = fleet_tables(Fleet(AT, AT + 1, (HOSTILE_ONE,)), "model", MODEL, 20, 5.0)
    assert {cell for table in unknown for row in table.rows for cell in row.cells} == {"-"}


def test_the_worst_comes_first_and_the_rest_is_taken_together() -> None:
    many = Fleet(AT, AT + 1, tuple(Summary({MODEL: f"m{n}"}, frozen_s=float(n)) for n in range(5)))
    table = fleet_tables(many, "model", MODEL, 2, 5.0)[1]
    assert {row.name: row.cells[3] for row in table.rows} == {
        "m4": "4.00 s", "m3": "3.00 s", "3 others": "3.00 s", "all": "10.0 s",
    }  # fmt: skip


def test_the_words_say_what_metrics_cannot_tell() -> None:
    assert fleet_in_words(FLEET, 5.0, timezone.utc) == (
        "From 2026-09-21 14:13:20 to 2026-09-21 15:13:20 (UTC), 102 streams ended.",
        "10 of 100 had a gap of more than 5 s; with 95 % confidence, 5.5 to 17 % of all are.",
        "The server restarted in this time.",
        "Metrics hold no single streams: a timeline, and a page with plots, need a journal.",
    )
    assert "is unknown" in fleet_in_words(Fleet(AT, AT + 1, (HOSTILE_ONE,)), 5.0)[1]


def test_a_threshold_that_is_no_bound_leaves_the_share_unknown() -> None:
    assert froze_of(BIG, 7.0) is None
    assert froze_of(HOSTILE_ONE, 5.0) is None


@pytest.mark.parametrize(
    ("bounds", "asked", "said"),
    [
        ([(2.0, 60), (5.0, 90)], 3.0, "3 s is not a bound of the histogram of gaps; the nearest are 2 and 5 s."),
        ([(2.0, 60), (math.inf, 100)], 3.0, "the nearest is 2 s."),
        ([(2.0, 60), (math.inf, 100)], 0.7, "0.7 s is not a bound of the histogram of gaps; the nearest is 2 s."),
        ([(math.inf, 100)], 3.0, "3 s is not a bound of the histogram of gaps; there is none."),
        ([(2.8284271247461903, 60), (4.0, 90)], 3.0, "the nearest are 2.8284271247461903 and 4 s."),
    ],
)  # fmt: skip
def test_a_threshold_that_is_no_bound_is_said_with_the_nearest(
    bounds: list[tuple[float, float]], asked: float, said: str
) -> None:
    """They can be given back as they are written."""
    words = fleet_in_words(Fleet(AT, AT + 1, (Summary({MODEL: "big"}, max_gap=classic(bounds)),)), asked)
    assert words[1].startswith("Which share of them froze is unknown: ")
    assert words[1].endswith(said)


def test_a_quantile_of_nothing_is_not_known() -> None:
    assert at(Histogram(()), 0.5) == "-"
    assert at(None, 0.5) == "-"


def test_json_has_the_same_numbers() -> None:
    found = fleet_document({"model": FLEET}, {"model": MODEL}, 5.0, ["said"])
    by = found["by"]
    assert isinstance(by, dict)
    hostile, big = by["model"]
    assert (hostile["name"], hostile["froze"], hostile["streams"]) == (HOSTILE, None, None)
    assert big["froze"]["count"] == 10
    assert big["gap"] == {"p50": 1.0, "p95": pytest.approx(8.125), "p99": 10.0}
    assert big["outcomes"] == {"completed": 100.0, "timeout": 2.0}
