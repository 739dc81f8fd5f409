"""A whole monitoring stack, real but for the engine: clients, Prometheus, Alertmanager, and who is paged."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from benchmarks.wire import Script, WireServer
from openai import OpenAI

from midstream import Freeze, monitor
from midstream.monitoring.alerts import Tuning, build
from midstream.monitoring.alerts.render import as_yaml, prometheus
from midstream.setup import Setup
from midstream.telemetry.exporters.configuration import export_configuration
from midstream.testing import DONE, finish, role, text, usage
from monitoring.alerts.engine_page import EnginePage
from real.programs import Prometheus, absent, answers, free_port, running

MODEL = "Qwen/Qwen3-8B"
FREEZE_AFTER_S = 0.5
SILENCE_S = 6.0
"""How long the frozen answer is silent: past the objective's 5 s."""
EVERY_S = 1

# Every model and server is scraped at least once before its first freeze, as with a threshold of 5 s it would be.
TALKS_S = 2.4

QUICK = [
    (0.0, role()),
    (0.05, text("a")),
    (0.1, text("b")),
    (0.15, finish("length")),
    (0.15, usage(9, 2)),
    (0.2, DONE),
]
FROZEN = [
    (0.0, role()),
    *((0.2 + 0.2 * n, text("a")) for n in range(12)),
    (TALKS_S + SILENCE_S, text("b")),
    (TALKS_S + SILENCE_S, finish()),
    (TALKS_S + SILENCE_S, usage(9, 13)),
    (TALKS_S + SILENCE_S, DONE),
]


@dataclass
class Paged:
    """What the Alertmanager told the person on call, and when."""

    told: list[tuple[float, str, dict[str, Any]]] = field(default_factory=list)

    def first(self, alert: str, status: str) -> tuple[float, dict[str, Any]] | None:
        """Give the first notice of an alert with this status."""
        return next(
            (
                (at, one)
                for at, said, one in list(self.told)
                if said == status and one["labels"]["alertname"] == alert
            ),
            None,
        )


class Traffic:
    """Users who never stop asking for short answers, and one whose answer freezes."""

    def __init__(self, setup: Setup, quick: str, frozen: str) -> None:
        self.froze_at: list[float] = []
        self._setup = setup
        self._frozen = self._client(frozen)
        self._quick = self._client(quick)
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._ask_on)]

    def start(self) -> None:
        """Begin to ask for short answers."""
        for thread in self._threads:
            thread.start()

    def freeze(self) -> None:
        """Ask for an answer that freezes; it goes on in the background."""
        thread = threading.Thread(target=self._read, args=(self._frozen,))
        self._threads.append(thread)
        thread.start()

    def stop(self) -> None:
        """Let everybody finish."""
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _ask_on(self) -> None:
        while not self._over.wait(0.2):
            self._read(self._quick)

    def _client(self, base_url: str) -> OpenAI:
        client = OpenAI(base_url=base_url, api_key="none", max_retries=0)
        return monitor(
            client,
            freeze_after_s=FREEZE_AFTER_S,
            on_freeze=self._on_freeze,
            meter_provider=self._setup.meter_provider,
        )

    def _on_freeze(self, _: Freeze) -> None:
        self.froze_at.append(time.monotonic())

    def _read(self, client: OpenAI) -> None:
        for _ in client.chat.completions.create(model=MODEL, messages=[], max_tokens=2, stream=True):
            pass


@dataclass(frozen=True)
class Stack:
    """Everything that runs."""

    prometheus: Prometheus
    alertmanager: str
    targets: dict[str, str]
    traffic: Traffic
    engine: EnginePage
    paged: Paged


@contextmanager
def stack(home: Path, tuning: Tuning) -> Iterator[Stack]:
    """Run the whole stack with the rules of these settings, until the block ends."""
    programs = [shutil.which(name) or absent(name) for name in ("prometheus", "prometheus-alertmanager")]
    with ExitStack() as cleanup:
        setup = cleanup.enter_context(Setup(export_configuration({}, prometheus=0)))
        engine = cleanup.enter_context(EnginePage(MODEL))
        quick, frozen = (cleanup.enter_context(wire(script)) for script in (QUICK, FROZEN))
        paged = Paged()
        receiver = cleanup.enter_context(on_call(paged))
        targets = {"app": urlsplit(setup.prometheus_url or "").netloc, "engine": engine.target}
        alertmanager = run_alertmanager(cleanup, programs[1], home, receiver)
        server = run_prometheus(
            cleanup, programs[0], home, targets=targets, alertmanager=alertmanager, tuning=tuning
        )
        traffic = Traffic(setup, quick.base_url, frozen.base_url)
        cleanup.callback(traffic.stop)
        traffic.start()
        yield Stack(Prometheus(f"http://{server}"), alertmanager, targets, traffic, engine, paged)


def wire(script: Script) -> WireServer:
    """Serve one script to everybody."""
    return WireServer(script)


def run_prometheus(
    cleanup: ExitStack,
    program: str,
    home: Path,
    *,
    targets: dict[str, str],
    alertmanager: str,
    tuning: Tuning,
) -> str:
    """Start a Prometheus that scrapes and judges every second."""
    (home / "rules.yml").write_text(as_yaml(prometheus(build(tuning), tuning)))
    config = {
        "global": {
            "scrape_interval": f"{EVERY_S}s",
            "scrape_timeout": "1s",
            "evaluation_interval": f"{EVERY_S}s",
        },
        "rule_files": ["rules.yml"],
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": [alertmanager]}]}]},
        **scraping(targets),
    }
    (home / "prometheus.yml").write_text(json.dumps(config))  # all JSON is YAML
    server = f"127.0.0.1:{free_port()}"
    command = [
        program,
        f"--config.file={home / 'prometheus.yml'}",
        f"--storage.tsdb.path={home / 'prometheus'}",
        f"--web.listen-address={server}",
        "--log.level=warn",
    ]
    ready = f"http://{server}/-/ready"
    cleanup.enter_context(running(command, home / "prometheus.output", lambda: answers(ready)))
    return server


def scraping(targets: dict[str, str]) -> dict[str, Any]:
    """Say what to scrape, as Prometheus and VictoriaMetrics read it."""
    return {
        "scrape_configs": [
            {
                "job_name": job,
                "scrape_interval": f"{EVERY_S}s",
                "honor_labels": True,  # what came by OTLP has a job already
                "static_configs": [{"targets": [target]}],
            }
            for job, target in targets.items()
        ]
    }


def run_alertmanager(cleanup: ExitStack, program: str, home: Path, receiver: str) -> str:
    """Start an Alertmanager that tells the receiver at once."""
    config = {
        "route": {
            "receiver": "on-call",
            "group_by": ["..."],
            "group_wait": "0s",
            "group_interval": "1s",
            "repeat_interval": "1h",
        },
        "receivers": [{"name": "on-call", "webhook_configs": [{"url": receiver, "send_resolved": True}]}],
    }
    (home / "alertmanager.yml").write_text(json.dumps(config))
    server = f"127.0.0.1:{free_port()}"
    command = [
        program,
        f"--config.file={home / 'alertmanager.yml'}",
        f"--storage.path={home / 'alertmanager'}",
        f"--web.listen-address={server}",
        "--cluster.listen-address=",
        "--log.level=warn",
    ]
    ready = f"http://{server}/-/ready"
    cleanup.enter_context(running(command, home / "alertmanager.output", lambda: answers(ready)))
    return server


@contextmanager
def on_call(paged: Paged) -> Iterator[str]:
    """Be the webhook that the Alertmanager tells."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            at = time.monotonic()
            told = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            paged.told.extend((at, alert["status"], alert) for alert in told["alerts"])
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()
