"""What a real collector gets from `midstream proxy`, which only the standard variables tell of it."""

from __future__ import annotations

import re
import signal
import socket

import pytest

from midstream.testing import DONE, finish, role, text
from real.programs import Collector
from support.commands import read_until, running
from support.proxying import LAST, SSE_HEAD, chunked, post, raw_server, read_all, sending
from support.waiting import until

ANSWER = SSE_HEAD + chunked(*(each.encode() for each in (role(), text("Hello"), finish(), DONE))) + LAST


def test_the_proxy_sends_its_metrics_to_a_collector(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of each worker; no port is opened for them then."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.http)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "proxy by OTLP")
    with raw_server(sending(ANSWER)) as upstream:
        options = ["--upstream", upstream.url, "--port", "0", "--workers", "2"]
        with running("proxy", *options) as process:
            said = read_until(process, "^Clients: ")
            (port,) = re.findall(r"^http://127.0.0.1:(\d+)$", said, re.MULTILINE)
            for _ in range(8):
                with socket.create_connection(("127.0.0.1", int(port)), timeout=30) as client:
                    client.sendall(post().replace(b"\r\n", b"\r\nConnection: close\r\n", 1))
                    assert read_all(client).endswith(LAST)
            process.send_signal(signal.SIGTERM)
            out, err = process.communicate(timeout=60)
        assert (process.returncode, out, err) == (0, "", "")
        until(lambda: "stream.ended" in collector.backend.metrics("proxy by OTLP"))

    assert "Metrics: " not in said
    (point,) = collector.backend.metrics("proxy by OTLP")["stream.ended"].sum.data_points[:1]
    labels = {each.key: each.value.string_value for each in point.attributes}
    assert (labels["outcome"], labels["gen_ai.request.model"]) == ("completed", "m")
