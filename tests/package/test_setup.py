"""`setup()`: where metrics go, what is refused and how, and that it happens once."""

from __future__ import annotations

import errno
import gzip
import os
import re
import socket
import subprocess
import sys
import textwrap
import threading
import urllib.error
import urllib.request
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricExporter, MetricExportResult
from prometheus_client.core import Metric

from midstream.setup import Setup
from midstream.telemetry.exporters.configuration import ExportConfiguration, export_configuration
from midstream.telemetry.exporters.otlp import Push
from midstream.telemetry.exporters.prometheus import _Registry

ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4317"}
OFF = ExportConfiguration(
    protocol=None,
    target="",
    listen=None,
    service_name=None,
    export_interval_s=15.0,
    shutdown_timeout_s=2.0,
)


def run(code: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a process of its own, where the global meter provider is still to be set."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(code)],
        env={**own, **environ},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def fetch(url: str) -> str:
    """Scrape once."""
    with urllib.request.urlopen(url, timeout=10) as response:  # noqa: S310 - a url of our own making
        text: str = response.read().decode()
        return text


def lost(target: str, reason: str) -> str:
    """Give the line that is logged when metrics begin not to arrive."""
    return (
        f"metrics do not reach {target} ({reason}); streams are unaffected, "
        "and this is not logged again until it works"
    )


def samples(text: str) -> dict[str, float]:
    """Read Prometheus text: every sample of the metrics that tests make here, its labels left out."""
    lines = [line for line in text.splitlines() if line.startswith("test_")]
    assert len(lines) == len(set(lines)), "a series appears twice"
    return {re.sub(r"\{.*\}", "", line.rsplit(" ", 1)[0]): float(line.rsplit(" ", 1)[1]) for line in lines}


# Where metrics go


@pytest.mark.parametrize(
    ("environ", "keywords", "goes"),
    [
        ({}, {}, {"listen": ("127.0.0.1", 9464)}),
        ({}, {"otlp": False}, {"listen": ("127.0.0.1", 9464)}),
        ({}, {"prometheus": True}, {"listen": ("127.0.0.1", 9464)}),
        ({}, {"prometheus": 0}, {"listen": ("127.0.0.1", 0)}),
        ({}, {"prometheus": 9999, "host": "0.0.0.0"}, {"listen": ("0.0.0.0", 9999)}),
        (
            {"OTEL_EXPORTER_PROMETHEUS_HOST": "::1", "OTEL_EXPORTER_PROMETHEUS_PORT": "9999"},
            {},
            {"listen": ("::1", 9999)},
        ),
        (
            {"OTEL_EXPORTER_PROMETHEUS_HOST": "::1", "OTEL_EXPORTER_PROMETHEUS_PORT": "9999"},
            {"prometheus": 1, "host": "127.0.0.1"},
            {"listen": ("127.0.0.1", 1)},
        ),
        ({}, {"otlp": True}, {"protocol": "grpc", "target": "localhost:4317"}),
        (ENDPOINT, {}, {"protocol": "grpc", "target": "collector:4317"}),
        (ENDPOINT, {"otlp": False}, {"listen": ("127.0.0.1", 9464)}),
        (ENDPOINT, {"prometheus": False}, {"protocol": "grpc", "target": "collector:4317"}),
        (
            ENDPOINT,
            {"prometheus": 0},
            {"protocol": "grpc", "target": "collector:4317", "listen": ("127.0.0.1", 0)},
        ),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "collector:4317"},
            {},
            {"protocol": "grpc", "target": "collector:4317"},
        ),
        (
            {**ENDPOINT, "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://metrics:4317"},
            {},
            {"protocol": "grpc", "target": "metrics:4317"},
        ),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"},
            {},
            {"protocol": "http/protobuf", "target": "collector:4318"},
        ),
        (
            {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"},
            {"otlp": True},
            {"protocol": "http/protobuf", "target": "localhost:4318"},
        ),
        (
            {
                "OTEL_EXPORTER_OTLP_ENDPOINT": "https://collector:4318",
                "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
                "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL": "grpc",
            },
            {},
            {"protocol": "grpc", "target": "collector:4318"},
        ),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "https://me:secret@collector/v1?key=secret"},
            {},
            {"protocol": "grpc", "target": "collector"},
        ),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, {}, {"listen": ("127.0.0.1", 9464)}),
        ({"OTEL_METRICS_EXPORTER": "none"}, {}, {}),
        ({**ENDPOINT, "OTEL_METRICS_EXPORTER": "none"}, {}, {}),
        (
            {"OTEL_METRICS_EXPORTER": "none"},
            {"otlp": True},
            {"protocol": "grpc", "target": "localhost:4317"},
        ),
        (
            {**ENDPOINT, "OTEL_METRICS_EXPORTER": "otlp, prometheus"},
            {},
            {"protocol": "grpc", "target": "collector:4317", "listen": ("127.0.0.1", 9464)},
        ),
        ({**ENDPOINT, "OTEL_SDK_DISABLED": "true"}, {"prometheus": 0}, {}),
        (
            {"OTEL_METRIC_EXPORT_INTERVAL": "2500"},
            {"prometheus": 0},
            {"listen": ("127.0.0.1", 0), "export_interval_s": 2.5},
        ),
        (
            {"OTEL_METRIC_EXPORT_INTERVAL": "2500"},
            {"prometheus": 0, "export_interval_s": 1, "shutdown_timeout_s": 0.5, "service_name": "shop"},
            {
                "listen": ("127.0.0.1", 0),
                "export_interval_s": 1.0,
                "shutdown_timeout_s": 0.5,
                "service_name": "shop",
            },
        ),
    ],
)
def test_keywords_win_over_the_standard_variables_and_those_over_the_defaults(
    environ: dict[str, str], keywords: dict[str, Any], goes: dict[str, Any]
) -> None:
    """OTLP where something asks for it, Prometheus where something asks for it or nothing else is left."""
    expected = {name: getattr(OFF, name) for name in ExportConfiguration.__dataclass_fields__} | goes

    assert export_configuration(environ, **keywords) == ExportConfiguration(**expected)


@pytest.mark.parametrize(
    ("environ", "keywords", "error", "says"),
    [
        (
            {},
            {"prometheus": False},
            ValueError,
            "nowhere to send metrics: set OTEL_EXPORTER_OTLP_ENDPOINT or",
        ),
        ({}, {"prometheus": 65536}, ValueError, "prometheus must be a port from 1 to 65535, or 0 for any"),
        (
            {},
            {"prometheus": -1},
            ValueError,
            "prometheus must be a port from 1 to 65535, or 0 for any free one",
        ),
        (
            {},
            {"prometheus": "9464"},
            TypeError,
            "prometheus must be True, False or a port number, got '9464'",
        ),
        (
            {"OTEL_EXPORTER_PROMETHEUS_PORT": "http"},
            {},
            ValueError,
            "OTEL_EXPORTER_PROMETHEUS_PORT must be a port number, got 'http'",
        ),
        (
            {"OTEL_EXPORTER_PROMETHEUS_PORT": "99999"},
            {},
            ValueError,
            "OTEL_EXPORTER_PROMETHEUS_PORT must be a port from 1 to 65535, or 0 for any free one, got 99999",
        ),
        ({}, {"otlp": "http://collector:4317"}, TypeError, "set its address in OTEL_EXPORTER_OTLP_ENDPOINT"),
        ({}, {"service_name": ""}, ValueError, "service_name must not be empty; leave it out to be named by"),
        (
            {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"},
            {"otlp": True},
            ValueError,
            "OTEL_EXPORTER_OTLP_PROTOCOL must be grpc or http/protobuf, got 'http/json'",
        ),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "me:secret@collector:4318"},
            {},
            ValueError,
            "OTEL_EXPORTER_OTLP_ENDPOINT must begin with http:// or https://, got 'collector:4318'",
        ),
        (
            {"OTEL_METRICS_EXPORTER": "console"},
            {},
            ValueError,
            "OTEL_METRICS_EXPORTER may name otlp, prometheus or none here, got 'console'",
        ),
        (
            {"OTEL_METRIC_EXPORT_INTERVAL": "15s"},
            {},
            ValueError,
            "OTEL_METRIC_EXPORT_INTERVAL must be a positive number of milliseconds, got '15s'",
        ),
        (
            {},
            {"export_interval_s": 0},
            ValueError,
            "export_interval_s must be a positive number of seconds, got 0",
        ),
        ({}, {"export_interval_s": "1"}, TypeError, "export_interval_s must be a number of seconds, got '1'"),
        (
            {},
            {"shutdown_timeout_s": float("inf")},
            ValueError,
            "shutdown_timeout_s must be a positive number of seconds, got inf",
        ),
    ],
)
def test_what_cannot_be_is_refused_with_value_and_remedy(
    environ: dict[str, str], keywords: dict[str, Any], error: type[Exception], says: str
) -> None:
    """Nothing is opened or started before all that was said makes sense."""
    with pytest.raises(error, match=re.escape(says)):
        export_configuration(environ, **keywords)


# The Prometheus endpoint


def test_the_endpoint_serves_what_is_recorded_on_a_free_port() -> None:
    """The handle tells where; the service has its name; and the port is free again afterwards."""
    with Setup(export_configuration({}, prometheus=0, service_name="shop")) as handle:
        handle.meter_provider.get_meter("test").create_counter("test.calls").add(3)
        url = handle.prometheus_url or ""
        text = fetch(url)

    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/metrics", url)
    assert samples(text) == {"test_calls_total": 3.0}
    assert 'service_name="shop"' in text
    with socket.create_server(("127.0.0.1", int(url.split(":")[2].split("/")[0]))):
        pass


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
def test_the_endpoint_can_listen_on_ipv6() -> None:
    """Its address goes into brackets."""
    with Setup(export_configuration({}, prometheus=0, host="::1")) as handle:
        url = handle.prometheus_url or ""

        handle.meter_provider.get_meter("test").create_counter("test.calls").add(3)

        assert url.startswith("http://[::1]:")
        assert samples(fetch(url)) == {"test_calls_total": 3.0}


def test_a_url_that_can_be_opened_is_told_for_every_address() -> None:
    """Nobody can connect to 0.0.0.0 by that name everywhere."""
    with Setup(export_configuration({}, prometheus=0, host="0.0.0.0")) as handle:
        assert (handle.prometheus_url or "").startswith("http://localhost:")


def test_a_port_in_use_is_one_clear_sentence() -> None:
    """It names the address and the way out, and nothing stays open behind it."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match="endpoint cannot listen") as caught:
            Setup(export_configuration({}, prometheus=port))

    assert str(caught.value) == (
        f"[Errno {errno.EADDRINUSE}] the Prometheus endpoint cannot listen on 127.0.0.1:{port}: "
        f"{os.strerror(errno.EADDRINUSE)}; pass prometheus=0 for any free port"
    )


def test_a_host_that_does_not_exist_is_one_clear_sentence() -> None:
    """The same for an address that is not this machine's."""
    says = f"cannot listen on 192.0.2.1:0: {os.strerror(errno.EADDRNOTAVAIL)}"
    with pytest.raises(OSError, match=re.escape(says)):
        Setup(export_configuration({}, prometheus=0, host="192.0.2.1"))


def test_scrapes_that_come_together_are_served_one_after_the_other() -> None:
    """The reader keeps what it collected in one place for all, so that one of two scrapes could take both."""
    registry, together = _Registry(), threading.Barrier(2)
    met: list[bool] = []

    class Family:
        def collect(self) -> Iterable[Metric]:
            with suppress(threading.BrokenBarrierError):
                together.wait(0.1)
                met.append(True)
            return []

    registry.register(Family())
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: list(registry.collect()), range(2)))

    assert met == []


def test_names_that_cannot_be_encoded_do_not_break_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not of the program's own metrics, either, nor of what the environment says of the process."""
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "team=\udcff")
    with Setup(export_configuration({}, prometheus=0, service_name="shop\ud800")) as handle:
        handle.meter_provider.get_meter("test").create_counter("test.calls").add(3, {"model": "\ud800"})
        url = handle.prometheus_url or ""
        pages = [fetch(url), fetch(url)]

    for page in pages:
        assert samples(page) == {"test_calls_total": 3.0}
        assert 'model="\ufffd"' in page


def test_the_page_is_compressed_for_who_asks_and_is_at_its_own_path_only() -> None:
    with Setup(export_configuration({}, prometheus=0)) as handle:
        handle.meter_provider.get_meter("test").create_counter("test.calls").add(3)
        url = handle.prometheus_url or ""
        request = urllib.request.Request(url, headers={"Accept-Encoding": "gzip"})  # noqa: S310 - our own
        with urllib.request.urlopen(request, timeout=10) as response:  # noqa: S310
            text = gzip.decompress(response.read()).decode()
        with pytest.raises(urllib.error.HTTPError, match="404"):
            fetch(url + "/other")

    assert samples(text) == {"test_calls_total": 3.0}


def test_the_endpoint_answers_the_hosts_that_it_was_given() -> None:
    """On loopback those of this machine, and more by name: a page of the web cannot read it by a rebound name."""
    statuses = []
    with Setup(export_configuration({}, prometheus=0, allow_hosts=["app.internal"])) as handle:
        for host in ("localhost", "app.internal", "evil.example"):
            request = urllib.request.Request(handle.prometheus_url or "", headers={"Host": host})  # noqa: S310
            try:
                statuses.append(urllib.request.urlopen(request, timeout=10).status)  # noqa: S310
            except urllib.error.HTTPError as error:
                statuses.append(error.code)

    assert statuses == [200, 200, 403]


def test_a_flush_leaves_nothing_behind_for_the_next_scrape() -> None:
    """There is nothing to send, so nothing is collected: it would pile up and be served twice."""
    with Setup(export_configuration({}, prometheus=0)) as handle:
        handle.meter_provider.get_meter("test").create_counter("test.calls").add(3)

        assert handle.flush() is True
        assert samples(fetch(handle.prometheus_url or "")) == {"test_calls_total": 3.0}


def test_without_the_extra_the_way_to_get_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The endpoint is an extra, and an import error of something else would not say so."""
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.prometheus", None)
    monkeypatch.delitem(sys.modules, "midstream.telemetry.exporters.prometheus", raising=False)

    with pytest.raises(ImportError, match=re.escape("pip install 'midstream[prometheus]'")):
        Setup(export_configuration({}, prometheus=0))


# OTLP


class Collector(MetricExporter):
    """Stands in for the exporter: answers as it is told to, and keeps what it was asked."""

    def __init__(self, *answers: MetricExportResult | Exception) -> None:
        super().__init__()
        self.answers = list(answers)
        self.closed = 0

    def export(self, *_args: Any, **_kwargs: Any) -> MetricExportResult:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def force_flush(self, timeout_millis: float = 0) -> bool:
        return True

    def shutdown(self, timeout_millis: float = 0, **_kwargs: Any) -> None:
        self.closed += 1


OK, FAILED = MetricExportResult.SUCCESS, MetricExportResult.FAILURE


def test_an_outage_is_told_once_and_so_is_its_end(caplog: pytest.LogCaptureFixture) -> None:
    """However often it is tried meanwhile; and the next outage is news again."""
    caplog.set_level("INFO", logger="midstream")
    collector = Collector(OK, FAILED, ConnectionError("secret"), FAILED, OK, OK, FAILED, OK)
    push = Push(collector, "collector:4317", interval_s=3600)
    provider = MeterProvider([push.reader], shutdown_on_exit=False)
    provider.get_meter("test").create_counter("test.calls").add(3)

    arrived = [push.flush(10.0) for _ in range(7)]
    provider.shutdown()

    assert arrived == [True, False, False, False, True, True, False]
    assert (collector.answers, collector.closed) == ([], 1)
    assert [record.getMessage() for record in caplog.records] == [
        lost("collector:4317", "no reason given"),
        "metrics reach collector:4317 again",
        lost("collector:4317", "no reason given"),
        "metrics reach collector:4317 again",
    ]


def test_nothing_arrives_after_the_end() -> None:
    """A flush that comes too late says so."""
    push = Push(Collector(OK), "collector:4317", interval_s=3600)
    provider = MeterProvider([push.reader], shutdown_on_exit=False)
    provider.get_meter("test").create_counter("test.calls").add(3)
    provider.shutdown()

    assert push.flush(10.0) is False


def test_a_collector_that_is_down_is_told_by_its_status_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The exporters log every attempt, with addresses whole; not a line of theirs gets through."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # taken, but nobody listens
        target = f"127.0.0.1:{unused.getsockname()[1]}"
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://{target}")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
        with Setup(export_configuration(os.environ, export_interval_s=3600)) as handle:
            handle.meter_provider.get_meter("test").create_counter("test.calls").add(3)
            arrived = [handle.flush(10.0) for _ in range(2)]

    assert arrived == [False, False]
    # On a busy machine the time limit of the export may end before the connection is refused.
    (logged,) = [record.getMessage() for record in caplog.records]
    assert logged in {lost(target, "StatusCode.UNAVAILABLE"), lost(target, "StatusCode.DEADLINE_EXCEEDED")}


def test_both_destinations_may_be_open_at_once() -> None:
    """What is sent is served as well, and the handle shows both."""
    with Setup(export_configuration(ENDPOINT, prometheus=0, shutdown_timeout_s=0.1)) as handle:
        handle.meter_provider.get_meter("test").create_counter("test.calls").add(3)

        assert samples(fetch(handle.prometheus_url or "")) == {"test_calls_total": 3.0}
        assert repr(handle) == f"<midstream.Setup otlp=collector:4317 {handle.prometheus_url}>"
    assert repr(handle) == f"<midstream.Setup otlp=collector:4317 {handle.prometheus_url} closed>"


def test_a_second_shutdown_does_nothing() -> None:
    """The `with` block, the user and the end of the process may all ask for it."""
    handle = Setup(export_configuration({}, prometheus=0))
    handle.shutdown()
    handle.shutdown()

    assert handle.closed


# Once per process


def test_setup_sets_the_global_provider_for_monitors_made_before_and_after() -> None:
    """Whichever way a recorder came to the provider, all streams are in the one gauge that there is."""
    program = run(
        """
        import re, urllib.request, midstream
        from opentelemetry.metrics import get_meter_provider
        from midstream.telemetry.recorder import OpenSample, Recorder
        streams = lambda: [OpenSample({"gen_ai.request.model": "m"}, True, 2.0)]
        stand_in = get_meter_provider()
        early = [Recorder(None, streams), Recorder(stand_in, streams)]
        handle = midstream.setup(prometheus=0)
        late = [Recorder(None, streams), Recorder(handle.meter_provider, streams)]
        text = urllib.request.urlopen(handle.prometheus_url).read().decode()
        print(re.findall(r"^stream_(?:active|frozen|open_gap_seconds){.*} (.*)$", text, re.M))
        """
    )

    assert (program.stdout, program.stderr, program.returncode) == ("['4.0', '4.0', '2.0']\n", "", 0)


def test_the_same_setup_again_is_the_same_handle_and_another_is_refused() -> None:
    """A cell of a notebook may be run twice; a second set of destinations would never be used."""
    program = run(
        """
        import midstream
        handle = midstream.setup(prometheus=0)
        print(midstream.setup(prometheus=0) is handle)
        try:
            midstream.setup(otlp=True)
        except RuntimeError as exc:
            print(exc)
        handle.shutdown()
        try:
            midstream.setup(prometheus=0)
        except RuntimeError as exc:
            print(exc)
        """
    )

    same, other, over = program.stdout.splitlines()
    assert same == "True"
    assert re.fullmatch(
        r"midstream\.setup\(\) made <midstream\.Setup http://127\.0\.0\.1:\d+/metrics> from other arguments "
        r"before; call it once",
        other,
    )
    assert over == "midstream.setup() was shut down; a process sets its meter provider only once"
    assert (program.stderr, program.returncode) == ("", 0)


@pytest.mark.parametrize(
    "provider", ["opentelemetry.sdk.metrics.MeterProvider()", "opentelemetry.metrics.NoOpMeterProvider()"]
)
def test_an_application_with_a_provider_of_its_own_is_told_to_leave_setup_out(provider: str) -> None:
    """Ours would be ignored, and midstream uses the other already. No port stays open and no thread runs."""
    program = run(
        f"""
        import threading, midstream, opentelemetry.sdk.metrics
        from opentelemetry.metrics import set_meter_provider
        set_meter_provider({provider})
        try:
            midstream.setup(prometheus=0)
        except RuntimeError as exc:
            print(exc)
        print([thread.name for thread in threading.enumerate()])
        """
    )

    message, threads = program.stdout.splitlines()
    assert message == (
        "this process has a meter provider already, and midstream's metrics go there; leave out "
        "midstream.setup(), or call it before anything else sets a provider"
    )
    assert threads == "['MainThread']"
    assert program.returncode == 0


def test_importing_midstream_opens_and_starts_nothing() -> None:
    """No thread, no exporter, no provider: a library that is imported has done nothing yet."""
    program = run(
        """
        import sys, threading, midstream
        print([thread.name for thread in threading.enumerate()])
        print([name for name in sys.modules if name in {"grpc", "requests", "prometheus_client"}])
        """
    )

    assert program.stdout.splitlines() == ["['MainThread']", "[]"]
