"""Real programs, started for the tests that need them and stopped after the last one."""

from __future__ import annotations

import importlib.util
import json
import shutil
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from real.programs import Backend, Collector, Prometheus, absent, answers, free_port, listens, running


@pytest.fixture(scope="session")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Prometheus]]:
    """Start a Prometheus that scrapes the given URL."""
    program = shutil.which("prometheus") or absent("prometheus")
    with ExitStack() as cleanup:

        def scraping(url: str) -> Prometheus:
            home = tmp_path_factory.mktemp("prometheus")
            target = urllib.parse.urlsplit(url).netloc
            config = {
                "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
                "scrape_configs": [{"job_name": "app", "static_configs": [{"targets": [target]}]}],
            }
            (home / "prometheus.yml").write_text(json.dumps(config))  # all JSON is YAML
            server = f"127.0.0.1:{free_port()}"
            command = [
                program,
                f"--config.file={home / 'prometheus.yml'}",
                f"--storage.tsdb.path={home / 'data'}",
                f"--web.listen-address={server}",
                "--log.level=warn",
            ]
            ready = f"http://{server}/-/ready"
            cleanup.enter_context(running(command, home / "output", lambda: answers(ready)))
            return Prometheus(f"http://{server}")

        yield scraping


@pytest.fixture(scope="session")
def collector(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collector]:
    """Start a rotel that takes OTLP by gRPC and by HTTP, and sends it on to a backend of ours."""
    package = importlib.util.find_spec("rotel")
    program = Path((package and package.origin) or "").parent / "rotel-agent"
    if not program.exists():
        absent("rotel")
    home = tmp_path_factory.mktemp("rotel")
    grpc, http = free_port(), free_port()
    with Backend() as backend:
        command = [
            *(str(program), "start"),
            f"--pid-file={home / 'pid'}",
            f"--log-file={home / 'log'}",
            f"--otlp-grpc-endpoint=127.0.0.1:{grpc}",
            f"--otlp-http-endpoint=127.0.0.1:{http}",
            "--batch-timeout=100ms",
            "--exporter=otlp",
            "--otlp-exporter-protocol=http",
            f"--otlp-exporter-endpoint={backend.url}",
        ]
        with running(command, home / "output", lambda: listens(grpc) and listens(http)):
            yield Collector(f"http://127.0.0.1:{grpc}", f"http://127.0.0.1:{http}", backend)
