"""One Prometheus endpoint for all workers of a service, whichever of them have ended meanwhile."""

from __future__ import annotations

import importlib.util
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from real.programs import absent, fetch, free_port
from real.services import SERVERS, Service, serving, upstream
from support.waiting import until

GUNICORN = ["gunicorn", "application:wsgi", "--bind=127.0.0.1:{port}", "--log-level=warning"]


def need(module: str) -> None:
    if importlib.util.find_spec(module) is None:
        absent(module)


def workers_of(service: Service) -> list[int]:
    """The processes that have spawned under the server's own, by their files."""
    return [
        int(path.parent.name)
        for path in Path("/proc").glob("[0-9]*/stat")
        if f") S {service.process.pid} " in path.read_text()
        and b"spawn_main" in (path.parent / "cmdline").read_bytes()
    ]


class Page:
    """The metrics of a service, wherever they are served from."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.url = f"http://127.0.0.1:{port}/metrics"

    def text(self) -> str:
        try:
            return fetch(self.url).decode()
        except (urllib.error.URLError, ConnectionError):
            return ""

    def total(self, name: str, **labels: str) -> float:
        """The sum of the samples of this name, which have these labels."""
        found = 0.0
        for line in self.text().splitlines():
            if line.split("{")[0] == name and all(
                f'{key}="{value}"' in line for key, value in labels.items()
            ):
                found += float(line.rsplit(" ", 1)[1])
        return found


def ask_until(service: Service, enough: Callable[[set[int]], bool]) -> tuple[int, set[int]]:
    """Ask until the workers that answered are enough; how often that was, and their process ids."""
    asked, workers = 0, set[int]()
    for _ in range(40):
        workers |= {answer.result()["pid"] for answer in [service.ask() for _ in range(4)]}
        asked += 4
        if enough(workers):
            return asked, workers
    raise AssertionError(f"only {workers} answered")


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    "server", ["uvicorn with 2 workers", "gunicorn", "gunicorn with uvicorn's workers", "granian"]
)
def test_the_page_of_a_service_is_that_of_all_its_workers(server: str, tmp_path: Path) -> None:
    """Counters and histograms are sums, each series is there once, and no label names a process."""
    need(SERVERS[server][0])
    page = Page(free_port())
    with (
        upstream(0.05) as models,
        serving(SERVERS[server], tmp_path, models.base_url, setup={"prometheus": page.port}) as service,
    ):
        asked, _ = ask_until(service, lambda workers: len(workers) == 2)
        until(lambda: page.total("stream_ended_total") == asked, 60)

        assert page.total("stream_max_gap_seconds_count") == asked
        assert page.total("stream_max_gap_seconds_bucket", le="+Inf") == asked
        assert page.total("stream_active") == 0
        text = page.text()
        series = [line.rsplit(" ", 1)[0] for line in text.splitlines() if not line.startswith("#")]
        assert len(series) == len(set(series))
        assert not re.search(r"pid|worker|instance", text)
        bounds = re.findall(r'stream_max_gap_seconds_bucket\{.*le="(.*?)"', text)
        assert bounds == sorted(bounds, key=float)

        if server == "granian":
            return  # it stops when one of its workers is killed
        # Whichever has the port: the other takes it, and what both have counted stays.
        (first, *_) = ask_until(service, lambda workers: len(workers) == 2)[1]
        until(lambda: page.total("stream_ended_total") == len(models.exchanges), 60)
        before = page.total("stream_ended_total")
        os.kill(first, signal.SIGKILL)
        until(lambda: page.total("stream_ended_total") == before, 60)
        asked, _ = ask_until(service, lambda workers: first not in workers)
        until(lambda: page.total("stream_ended_total") == before + asked, 60)

    directories = list((tmp_path / "runtime").iterdir())
    for directory in [tmp_path / "runtime", *directories]:
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    for file in directories[0].iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.timeout(400)
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("preload", [[], ["--preload"]])
def test_recycled_workers_stay_counted_and_leave_few_files(
    workers: int, preload: list[str], tmp_path: Path
) -> None:
    """Gunicorn replaces a worker after three requests."""
    need("gunicorn")
    page = Page(free_port())
    with (
        upstream(0.02) as models,
        serving(
            [*GUNICORN, f"--workers={workers}", "--max-requests=3", *preload],
            tmp_path,
            models.base_url,
            setup={"prometheus": page.port},
        ) as service,
    ):
        seen: list[float] = []
        pids = set()
        for number in range(30):
            pids.add(service.ask().result()["pid"])
            if number % 5 == 4:
                seen.append(page.total("stream_ended_total"))
        until(lambda: page.total("stream_ended_total") == 30, 200)  # the next worker starts first
        (files,) = [list(directory.iterdir()) for directory in (tmp_path / "runtime").iterdir()]

    assert len(pids) >= 5
    served = [count for count in seen if count]  # a moment passes until the next worker has the port
    assert served == sorted(served)
    assert len(files) <= 2 * workers + 3


@pytest.mark.timeout(180)
def test_live_gauges_of_a_killed_worker_vanish(tmp_path: Path) -> None:
    """While it streams it is counted, wherever the page is served from; afterwards it is not."""
    need("uvicorn")
    page = Page(free_port())
    with (
        upstream(60.0) as models,
        serving(
            SERVERS["uvicorn with 2 workers"],
            tmp_path,
            models.base_url,
            setup={"prometheus": page.port},
        ) as service,
    ):
        for _ in range(6):
            service.ask()
        until(lambda: page.total("stream_active") == 6, 60)
        until(lambda: page.total("stream_open_gap_seconds") > 0.5, 60)
        assert page.total("stream_open_gap_seconds") < 60
        for worker in workers_of(service):
            os.kill(worker, signal.SIGKILL)
        until(lambda: bool(page.text()) and page.total("stream_active") == 0, 60)


@pytest.mark.timeout(120)
def test_a_port_that_another_program_has_takes_no_service_down(tmp_path: Path) -> None:
    """The workers answer, and the log says once for each why there are no metrics."""
    need("uvicorn")
    with (
        upstream(0.05) as models,
        socket.create_server(("127.0.0.1", 0)) as other,
        serving(
            SERVERS["uvicorn with 2 workers"],
            tmp_path,
            models.base_url,
            setup={"prometheus": other.getsockname()[1]},
        ) as service,
    ):
        ask_until(service, lambda workers: len(workers) == 2)
        output = tmp_path / "output"
        until(lambda: output.read_text().count("metrics cannot be served") == 2, 60)
        assert "Traceback" not in output.read_text()


FORKING = """
import os, sys, time
from openai import OpenAI
import midstream

port, when = int(sys.argv[1]), sys.argv[2]
client = None
def ask(times):
    global client
    if client is None:
        client = midstream.monitor(OpenAI(api_key="none", base_url=sys.argv[3]))
    for _ in range(times):
        for _ in client.chat.completions.create(model="m", messages=[], stream=True):
            pass
if when == "before":
    midstream.setup(prometheus=port)
    ask(2)
children = []
for times in (3, 4):
    child = os.fork()
    if child == 0:
        if when == "after":
            midstream.setup(prometheus=port)
        ask(times)
        print("asked", flush=True)
        time.sleep(60)
        os._exit(0)
    children.append(child)
if when == "after":
    midstream.setup(prometheus=port)
    ask(2)
print("asked", *children, flush=True)
for _ in children:
    os.wait()
print("alone", flush=True)
time.sleep(60)
"""


@pytest.mark.timeout(120)
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_program_that_forks_has_one_page(when: str, tmp_path: Path) -> None:
    """Set up before the fork or after it: each child counts its own streams, from 0."""
    page = Page(free_port())
    with (
        upstream(0.02) as models,
        subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", FORKING, str(page.port), when, models.base_url],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "MIDSTREAM_RUNTIME_DIR": str(tmp_path / "runtime")},
        ) as process,
    ):
        try:
            assert process.stdout is not None
            lines = [process.stdout.readline() for _ in range(3)]
            children = [int(pid) for line in lines for pid in line.split()[1:]]
            until(lambda: page.total("stream_ended_total") == 9, 60)
            for child in children:
                os.kill(child, signal.SIGKILL)
            assert process.stdout.readline() == "alone\n"
            until(lambda: page.total("stream_ended_total") == 9, 60)
            time.sleep(0.2)
            assert page.total("stream_ended_total") == 9
        finally:
            process.kill()
