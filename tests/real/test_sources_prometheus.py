"""What a fleet's streams look like through the APIs of a real Prometheus and a real VictoriaMetrics."""

from __future__ import annotations

import json
import shutil
import time
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime, timezone

import pytest
from opentelemetry.metrics import Observation

from midstream.cli import main
from midstream.setup import Setup
from midstream.sources.prometheus import PrometheusError, PrometheusSource
from midstream.sources.select import SelectionError
from midstream.stream.model import Outcome
from midstream.telemetry.exporters.configuration import export_configuration
from midstream.telemetry.instruments import ACTIVE, MODEL
from midstream.telemetry.recorder import Recorder
from real.programs import Prometheus, absent, answers, free_port, running
from support.records import a_call, a_record
from support.waiting import until

FROZE = {"max_gap_s": 7.5, "freezes": 1, "frozen_s": 7.5}
SMOOTH = {"max_gap_s": 0.3}


@dataclass
class Fleet:
    """A server with its name, and where it is."""

    url: str
    since: float
    scraped: float
    """When the server was known to have seen the open stream."""
    split: float
    """When four streams had ended, and six more had not begun."""

    def source(self) -> PrometheusSource:
        """Ask it."""
        return PrometheusSource(self.url)


def stream(recorder: Recorder, model: str, **fields: object) -> None:
    """Let a stream end in the application."""
    labels = recorder.labels(a_call(request_model=model), {"team": "search"})
    recorder.opened(labels)
    if fields.get("freezes"):
        recorder.froze(labels, None)
        recorder.frozen_for(labels, float(str(fields["frozen_s"])))
    known = {"time_to_first_content_s": 0.2, "output_tokens": 100, "token_limit": 200, **fields}
    recorder.ended(labels, a_record(request_model=model, **known), None)


@pytest.fixture(scope="module")
def victoria(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], str]]:
    """Start a VictoriaMetrics that scrapes the given URL."""
    program = shutil.which("victoria-metrics") or absent("victoria-metrics")
    with ExitStack() as cleanup:

        def scraping(url: str) -> str:
            home = tmp_path_factory.mktemp("victoria")
            target = urllib.parse.urlsplit(url).netloc
            config = {
                "global": {"scrape_interval": "1s"},
                "scrape_configs": [{"job_name": "app", "static_configs": [{"targets": [target]}]}],
            }
            (home / "scrape.yml").write_text(json.dumps(config))
            server = f"127.0.0.1:{free_port()}"
            command = [
                program,
                f"-storageDataPath={home / 'data'}",
                f"-promscrape.config={home / 'scrape.yml'}",
                f"-httpListenAddr={server}",
                "-search.latencyOffset=0s",
                "-loggerLevel=ERROR",
            ]
            ready = f"http://{server}/health"
            cleanup.enter_context(running(command, home / "output", lambda: answers(ready)))
            return f"http://{server}"

        yield scraping


@pytest.fixture(scope="module", params=["prometheus", "victoria"])
def fleet(request: pytest.FixtureRequest, prometheus: Callable[[str], Prometheus]) -> Iterator[Fleet]:
    """Four streams of two models, one of which froze, before the server's eyes."""
    with Setup(export_configuration({}, prometheus=0)) as setup:
        since = time.time()
        target = setup.prometheus_url or ""
        url = (
            prometheus(target).url
            if request.param == "prometheus"
            else request.getfixturevalue("victoria")(target)
        )
        open_now = [1]
        setup.meter_provider.get_meter("test").create_observable_gauge(
            ACTIVE.name, [lambda _: [Observation(open_now[0])]], ACTIVE.unit, ACTIVE.description
        )
        recorder = Recorder(setup.meter_provider, list)
        labels = recorder.labels(a_call(request_model="big"), {"team": "search"})
        recorder.opened(labels)
        seen = Prometheus(url)
        until(lambda: seen.value("sum(stream_freezes_total)") == 0, timeout_s=20)
        scraped = time.time()
        stream(recorder, "big", **FROZE)
        stream(recorder, "big", **SMOOTH)
        stream(recorder, "big", outcome=Outcome.TIMEOUT, finish_reasons=(), output_tokens=None, **SMOOTH)
        stream(recorder, "small", finish_reasons=("length",), limit_hit=True, token_limit=100, **SMOOTH)
        until(lambda: seen.value("sum(stream_ended_total)") == 4, timeout_s=20)
        until(
            lambda: (seen.value("min(count_over_time(stream_max_gap_seconds_count[1m]))") or 0) >= 3,
            timeout_s=20,
        )
        open_now[0] = 0
        split = time.time()
        for _ in range(6):
            stream(recorder, "big", **SMOOTH)
        until(lambda: seen.value("sum(stream_ended_total)") == 10, timeout_s=20)
        yield Fleet(url, since, scraped, split)


def test_every_number_is_that_of_the_streams(fleet: Fleet) -> None:
    """Also of histograms, whose series are born with their first stream."""
    with fleet.source() as source:
        total = source.fleet(fleet.since, fleet.split).total

    assert total.ended == {
        ("completed", "stop"): 2,
        ("completed", "length"): 1,
        ("timeout", "none"): 1,
    }
    assert total.max_gap is not None
    assert total.max_gap.count == pytest.approx(4)
    assert total.max_gap.share_above(5.0) == pytest.approx((0.25, 0.25))
    assert total.max_gap.total == pytest.approx(8.4)
    assert total.output_tokens is not None
    assert (total.output_tokens.count, total.output_tokens.total) == (3, 300)
    assert total.limit_used is not None
    assert total.limit_used.above(0.99) == pytest.approx((1, 1))
    assert total.first_content is not None
    assert total.first_content.count == pytest.approx(4)
    assert total.freezes == 1
    assert total.frozen_s == 7.5
    assert total.limit_hits == 1


def test_streams_are_told_apart_by_an_attribute(fleet: Fleet) -> None:
    """By OTel's name of it, whatever the server calls the label."""
    with fleet.source() as source:
        found = source.fleet(fleet.since, fleet.split, by=(MODEL, "team")).summaries

    assert [dict(each.labels) for each in found] == [
        {MODEL: "big", "team": "search"},
        {MODEL: "small", "team": "search"},
    ]
    assert [each.streams for each in found] == pytest.approx([3, 1])


def test_conditions_choose_as_they_do_in_a_journal(fleet: Fleet) -> None:
    """`model=`, and an attribute of the user's; what nothing meets is said."""
    with fleet.source() as source:
        assert source.fleet(fleet.since, fleet.split, where=["model=small"]).total.streams == pytest.approx(1)
        chosen = source.fleet(fleet.since, fleet.split, where=["model!=small", "team=search"]).total
        assert chosen.streams == pytest.approx(3)
        with pytest.raises(PrometheusError, match="no streams that match model=none in this time"):
            source.fleet(fleet.since, fleet.split, where=["model=none"])
        with pytest.raises(SelectionError, match="is not NAME=VALUE"):
            source.fleet(fleet.since, fleet.split, where=["model"])


def test_slices_add_up_to_the_whole(fleet: Fleet) -> None:
    """So that their variance is that of the streams."""
    with fleet.source() as source:
        pieces = source.fleet(fleet.since, fleet.split).slices

    assert sum(piece.streams for piece in pieces) == 4
    assert sum(piece.froze for piece in pieces) == 1
    assert sum(piece.tokens or 0 for piece in pieces) == 300


def test_a_slice_tells_for_how_long_a_stream_was_open(fleet: Fleet) -> None:
    """All the time before the split but for the first scrapes, and hardly any after it."""
    with fleet.source() as source:
        before = source.fleet(fleet.since, fleet.split).slices
        after = source.fleet(fleet.split, time.time() + 20).slices

    # A program that is slow to start has scraped little of the time since the fixture began.
    assert 0.3 * (fleet.split - fleet.scraped) < sum(piece.seconds or 0 for piece in before)
    assert sum(piece.seconds or 0 for piece in before) <= fleet.split - fleet.since + 1
    assert sum(piece.seconds or 0 for piece in after) <= 6
    assert all(piece.seconds is not None for piece in before + after)


def test_a_time_without_streams_is_an_error_and_not_zero(fleet: Fleet) -> None:
    """Nobody has the metrics of last year."""
    with fleet.source() as source, pytest.raises(PrometheusError, match="has no metric of midstream"):
        source.fleet(fleet.since - 3e7, fleet.since - 2.9e7)


def test_a_query_that_fails_is_one_sentence(fleet: Fleet) -> None:
    """The server's own words are in it."""
    with fleet.source() as source, pytest.raises(PrometheusError, match="cannot evaluate the query"):
        source._api.at("sum(", fleet.split)


def test_compare_reads_two_spans_of_a_server(fleet: Fleet, capsys: pytest.CaptureFixture[str]) -> None:
    """Four streams are too few, and that is what it says."""
    spans = ["--before", f"{iso(fleet.since)}..{iso(fleet.split)}", "--after", f"{iso(fleet.split)}..now"]
    status = main(["compare", "--prometheus", fleet.url, *spans, "--json"])
    found = json.loads(capsys.readouterr().out)

    assert (status, found["verdict"]) == (4, "cannot tell")
    assert found["before"]["streams"] == pytest.approx(4)
    assert found["after"]["streams"] == 6
    assert found["measures"]["freeze_share"]["before"] == pytest.approx(0.25)
    assert found["measures"]["freeze_share"]["after"] == 0
    assert found["measures"]["freeze_share"]["judgement"] == "unknown"
    assert found["measures"]["first_content_p95_s"]["before"] == pytest.approx(0.25, abs=0.01)


def iso(at: float) -> str:
    """Write a moment as a user would."""
    return datetime.fromtimestamp(at, tz=timezone.utc).isoformat()
