"""One user of the demo, in a process of its own: a plain OpenAI client in `monitor()`, and a line to the demo."""

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
"""How often a user tells how the stream stands."""


@dataclass(frozen=True, slots=True)
class Job:
    """A server to ask, and the answer to ask it for."""

    base_url: str
    model: str
    prompt_tokens: int
    answer_tokens: int
    limit: int
    freeze_after_s: float
    journal: Path | None = None


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


Told: TypeAlias = Ready | Froze | Thawed | ClientFailed | OpenStream | StreamRecord
"""What a user tells: the values of midstream's own hooks and lists, as they are."""


class Line:
    """The sending side; whoever has nobody to tell any more has no reason to live."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._turn = threading.Lock()

    def tell(self, told: Told) -> None:
        """Send a value, from any thread."""
        try:
            with self._turn:
                self._connection.send(told)
        except OSError:
            os._exit(0)


def user(connection: Connection) -> None:
    """Do one job after the other: make the client, say so, ask at the given Unix time, read the answer."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the demo, which then ends its users in order
    # What midstream logs of a freeze, the demo is told.
    logging.getLogger("midstream").addHandler(logging.NullHandler())
    line = Line(connection)
    try:
        while True:
            _play(connection.recv(), connection, line)
    except (EOFError, OSError):
        return
    except Exception as error:  # noqa: BLE001 - whatever it is, the demo is told, and ends
        line.tell(ClientFailed(f"{type(error).__name__}: {error}"))


def _play(job: Job, connection: Connection, line: Line) -> None:
    # Neither a proxy nor a key of this machine has a part in this.
    with DefaultHttpxClient(trust_env=False) as http:
        client = monitor(
            OpenAI(base_url=job.base_url, api_key="none", http_client=http, max_retries=0),
            freeze_after_s=job.freeze_after_s,
            on_freeze=lambda freeze: line.tell(Froze(freeze)),
            on_thaw=lambda freeze: line.tell(Thawed(freeze)),
            on_end=line.tell,
            journal=job.journal,
        )
        client.models.list()  # what only a first call takes is over before the clock starts
        line.tell(Ready())
        time.sleep(max(0.0, connection.recv() - time.time()))
        _ask(client, job, line)


def _ask(client: OpenAI, job: Job, line: Line) -> None:
    over = threading.Event()
    teller = threading.Thread(target=partial(_tell_state, line, over), name="demo-state", daemon=True)
    teller.start()
    try:
        stream = client.chat.completions.create(
            model=job.model,
            messages=[{"role": "user", "content": "Tell me a long story."}],
            max_tokens=job.limit,
            stream=True,
            stream_options={"include_usage": True},
            extra_body={"emulate": {"prompt_tokens": job.prompt_tokens, "answer_tokens": job.answer_tokens}},
        )
        for _ in stream:
            pass
    finally:
        over.set()
        teller.join()


def _tell_state(line: Line, over: threading.Event) -> None:
    while not over.wait(EVERY_S):
        for stream in streams():
            line.tell(stream)
