"""gunicorn with a preloaded application: the workers are forks of a process that has streams open."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks.wire import WireServer

from support.frameworks_through import CHAT, ROWS
from support.waiting import until

pytest.importorskip("gunicorn")

APPLICATION = """
import json, os, threading
from openai import OpenAI
import midstream

told = []
def client():
    return midstream.monitor(OpenAI(api_key="none", base_url=os.environ["UPSTREAM"]), freeze_after_s=0.3,
        on_freeze=lambda freeze: told.append("froze"), on_end=lambda record: told.append(str(record.outcome)))
ASK = dict(model="m", messages=[], stream=True)
shared = client()
parents = shared.chat.completions.create(**ASK)
next(parents)
PARENT = os.getpid()

def application(environ, start_response):
    born_with = len(midstream.streams())
    told.clear()
    list(shared.chat.completions.create(**ASK))
    watchers = [t.name for t in threading.enumerate() if t.name == "midstream-watcher"]
    body = json.dumps({"pid": os.getpid(), "parent": PARENT, "born_with": born_with, "told": told, "open":
        len(midstream.streams()), "watchers": len(watchers)}).encode()
    start_response("200 OK", [("content-type", "application/json")])
    return [body]
"""


@contextlib.contextmanager
def gunicorn(tmp_path: Path, upstream: str) -> Iterator[int]:
    """Two workers that are forked after the application has begun to stream."""
    (tmp_path / "application.py").write_text(APPLICATION)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", "gunicorn", "--preload", "--workers", "2", "--bind", f"127.0.0.1:{port}",
         "--log-level", "warning", "application:application"],
        cwd=tmp_path,
        env={**os.environ, "UPSTREAM": upstream},
        stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    try:
        until(lambda: _answers(port), 30)
        yield port
    finally:
        process.terminate()
        process.communicate(timeout=30)


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError):
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
        return True
    return False


def test_preloaded_application(tmp_path: Path) -> None:
    """A worker begins without streams, and its own are followed by its own watcher, freezes included."""
    with WireServer(CHAT) as server, gunicorn(tmp_path, server.base_url) as port:
        seen = []
        for _ in range(4):
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=30) as answer:
                seen.append(json.load(answer))

    for worker in seen:
        assert worker["pid"] != worker["parent"]
        assert (worker["born_with"], worker["told"], worker["open"]) == (0, ["froze", "completed"], 0)
        assert worker["watchers"] == 1
    ROWS.append(
        f"| gunicorn: {len(seen)} answers by {len({worker['pid'] for worker in seen})} forked workers |"
    )
