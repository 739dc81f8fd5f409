"""One user of the demo, in a process of its own: an OpenAI client in `monitor()`, and a pipe to the demo."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TypeAlias

from openai import DefaultHttpxClient, OpenAI

from midstream import Freeze, OpenStream, StreamRecord, monitor, streams

EVERY_S = 0.1
"""How often a user sends the state of its stream."""


@dataclass(frozen=True, slots=True)
class UserTask:
    """A server to call, and the answer to request. `run` marks the streams of one demo in a journal."""

    base_url: str
    model: str
    prompt_tokens: int
    answer_tokens: int
    limit: int
    freeze_after_s: float
    journal: Path | None = None
    run: str = ""


@dataclass(frozen=True, slots=True)
class Ready:
    """The client is made and connected."""


@dataclass(frozen=True, slots=True)
class Froze:
    """`on_freeze` was called."""

    freeze: Freeze


@dataclass(frozen=True, slots=True)
class Thawed:
    """`on_thaw` was called."""

    freeze: Freeze


@dataclass(frozen=True, slots=True)
class ClientFailed:
    """The client raised this."""

    error: str


UserEvent: TypeAlias = Ready | Froze | Thawed | ClientFailed | OpenStream | StreamRecord
"""What a user sends: the values of midstream's own hooks and lists, as they are."""


class Line:
    """The sending side of a user; the process exits when the demo has closed its side."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._lock = threading.Lock()

    def send(self, event: UserEvent) -> None:
        """Send a value, from any thread."""
        try:
            with self._lock:
                self._connection.send(event)
        except OSError:
            os._exit(0)


def user(connection: Connection) -> None:
    """Do one task after the other: make the client, report that, call at the given Unix time, read the answer."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the demo, which then ends its users in order
    # The demo shows the freezes that midstream logs.
    logging.getLogger("midstream").addHandler(logging.NullHandler())
    line = Line(connection)
    clients: dict[str, OpenAI] = {}
    try:
        while True:
            task: UserTask = connection.recv()
            if task.base_url not in clients:
                clients[task.base_url] = _client(task, line)
            line.send(Ready())
            time.sleep(max(0.0, connection.recv() - time.time()))
            _stream(clients[task.base_url], task, line)
    except (EOFError, OSError):
        return
    except Exception as error:  # noqa: BLE001 - whatever it is, the demo reports it, and ends
        line.send(ClientFailed(f"{type(error).__name__}: {error}"))


def _client(task: UserTask, line: Line) -> OpenAI:
    """Return a monitored and connected client, so that nothing of that is left to do when the clock starts."""
    client = monitor(
        # Neither a proxy nor a key of this machine has a part in this.
        OpenAI(
            base_url=task.base_url,
            api_key="none",
            http_client=DefaultHttpxClient(trust_env=False),
            max_retries=0,
        ),
        freeze_after_s=task.freeze_after_s,
        on_freeze=lambda freeze: line.send(Froze(freeze)),
        on_thaw=lambda freeze: line.send(Thawed(freeze)),
        on_end=line.send,
        journal=task.journal,
        attributes={"run": task.run} if task.run else None,
    )
    client.models.list()
    return client


def _stream(client: OpenAI, task: UserTask, line: Line) -> None:
    over = threading.Event()
    sender = threading.Thread(target=partial(_send_state, line, over), name="demo-state", daemon=True)
    sender.start()
    try:
        stream = client.chat.completions.create(
            model=task.model,
            messages=[{"role": "user", "content": "Tell me a long story."}],
            max_tokens=task.limit,
            stream=True,
            stream_options={"include_usage": True},
            extra_body={
                "emulate": {"prompt_tokens": task.prompt_tokens, "answer_tokens": task.answer_tokens}
            },
        )
        for _ in stream:
            pass
    finally:
        over.set()
        sender.join()


def _send_state(line: Line, over: threading.Event) -> None:
    while not over.wait(EVERY_S):
        for stream in streams():
            line.send(stream)
