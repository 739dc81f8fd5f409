"""Native histograms, as a real Prometheus takes them in by a scrape and gives them out by its API.

No Python client writes them, so the page is put together here, in Prometheus' protobuf format (metrics.proto of
prometheus/client_model).
"""

from __future__ import annotations

import json
import shutil
import struct
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from midstream.advice.sides import side_of_fleet
from midstream.sources.fleet import Bucket
from midstream.sources.prometheus import PrometheusSource
from real.programs import Prometheus, absent, answers, free_port, running
from support.waiting import until

KIND = "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"


def varint(value: int) -> bytes:
    written = b""
    while value > 0x7F:
        written += bytes([value & 0x7F | 0x80])
        value >>= 7
    return written + bytes([value])


def zigzag(value: int) -> bytes:
    return varint(value << 1 if value >= 0 else (-value << 1) - 1)


def field(number: int, payload: bytes) -> bytes:
    """A field that is a message, a string or a packed list."""
    return varint(number << 3 | 2) + varint(len(payload)) + payload


def scalar(number: int, payload: bytes, wire: int = 0) -> bytes:
    return varint(number << 3 | wire) + payload


def histogram(name: str, counts: dict[int, int], total: float) -> bytes:
    """A family with one native histogram of schema 0: bucket i holds what is above 2^(i-1) and up to 2^i."""
    spans, deltas = b"", b""
    reached, last = None, 0
    for index, count in sorted(counts.items()):
        offset = index if reached is None else index - reached - 1
        spans += field(12, scalar(1, zigzag(offset)) + scalar(2, varint(1)))
        deltas += scalar(13, zigzag(count - last))
        reached, last = index, count
    body = scalar(1, varint(sum(counts.values()))) + scalar(2, struct.pack("<d", total), 1)
    body += (
        scalar(5, zigzag(0)) + scalar(6, struct.pack("<d", 1e-6), 1) + scalar(7, varint(0)) + spans + deltas
    )
    label = field(1, field(1, b"gen_ai_request_model") + field(2, b"m"))
    family = field(1, name.encode()) + scalar(3, varint(4)) + field(4, label + field(7, body))
    return varint(len(family)) + family


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Prometheus with native histograms, and a target that has some: nothing, and then a hundred streams."""
    program = shutil.which("prometheus") or absent("prometheus")
    pages = [histogram("stream_max_gap_seconds", {-1: 1}, 0.3)]

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", KIND)
            self.send_header("Content-Length", str(len(pages[-1])))
            self.end_headers()
            self.wfile.write(pages[-1])

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            pass

    home: Path = tmp_path_factory.mktemp("native")
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as target:
        threading.Thread(target=target.serve_forever, daemon=True).start()
        config = {
            "global": {"scrape_interval": "1s"},
            "scrape_configs": [
                {"job_name": "app", "static_configs": [{"targets": [f"127.0.0.1:{target.server_port}"]}]}
            ],
        }
        (home / "prometheus.yml").write_text(json.dumps(config))
        address = f"127.0.0.1:{free_port()}"
        command = [
            program,
            f"--config.file={home / 'prometheus.yml'}",
            f"--storage.tsdb.path={home / 'data'}",
            f"--web.listen-address={address}",
            "--enable-feature=native-histograms",
            "--log.level=warn",
        ]
        url = f"http://{address}"
        with running(command, home / "output", lambda: answers(f"{url}/-/ready")):
            seen = Prometheus(url)
            until(lambda: seen.value("sum(histogram_count(stream_max_gap_seconds))") == 1, timeout_s=20)
            # 0.3 s, 1.5 s and 9 s: the last of them froze.
            pages.append(histogram("stream_max_gap_seconds", {-1: 61, 1: 30, 4: 10}, 153.3))
            until(lambda: seen.value("sum(histogram_count(stream_max_gap_seconds))") == 101, timeout_s=20)
            yield url
        target.shutdown()


def test_a_native_histogram_is_read_as_it_is(server: str) -> None:
    """Its series has no `_bucket`, and its bounds are powers of two."""
    with PrometheusSource(server) as source:
        now = time.time()
        total = source.fleet(now - 60, now, by=("gen_ai.request.model",)).total

    assert total.max_gap is not None
    assert total.max_gap.buckets == (Bucket(0.25, 0.5, 61.0), Bucket(1.0, 2.0, 30.0), Bucket(8.0, 16.0, 10.0))
    assert total.max_gap.total == pytest.approx(153.3)
    assert total.max_gap.share_above(5.0) == pytest.approx((10 / 101, 10 / 101))
    assert total.freezes is None


def test_a_fleet_of_native_histograms_is_a_side_of_a_comparison(server: str) -> None:
    """Where no stream lies in the bucket around the threshold, freezes are known as well as ever."""
    with PrometheusSource(server) as source:
        now = time.time()
        fleet = source.fleet(now - 60, now)

    side = side_of_fleet(fleet, 5.0)
    assert (side.judged, side.froze) == (101, 10)
    assert sum(piece.streams for piece in fleet.slices) == pytest.approx(101, rel=0.3)
    with pytest.raises(ValueError, match=r"no bound at 1\.5 s"):
        side_of_fleet(fleet, 1.5)
