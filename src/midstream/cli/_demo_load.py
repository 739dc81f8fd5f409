"""The load of the demo: a real client for each recorded stream, all asking one server, all monitored."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from http.client import HTTPConnection
from typing import TypeAlias
from urllib.parse import urlsplit

from openai import AsyncOpenAI, DefaultAsyncHttpxClient

from midstream import Freeze, Outcome, StreamRecord, monitor
from midstream.cli._demo_user import Row, User
from midstream.lab.observed import ObservedLoad

PATIENCE_S = 5.0

Tell: TypeAlias = Callable[[str], object]
"""Gets a line for each thing that happens, when it happens, from any thread."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is replayed, `speed` times as fast as recorded; a silence of `freeze_after_s` is a freeze."""

    load: ObservedLoad
    speed: float
    freeze_after_s: float

    @property
    def lasts_s(self) -> float:
        """How long it takes."""
        return self.load.wall_s / self.speed


class Load:
    """The users of one server, followed with what midstream gives to everyone: the hooks and `streams()`."""

    def __init__(self, plan: Plan, base_url: str, metrics_url: str, tell: Tell) -> None:
        self.plan = plan
        self.metrics_url = metrics_url
        self.users = [
            User(number, recorded, plan.freeze_after_s)
            for number, recorded in enumerate(plan.load.streams, start=1)
        ]
        self.scraped: tuple[float, str] | None = None
        """When the last freeze began, and the metrics at that moment."""
        self._base_url = base_url
        self._tell = tell
        self._began: float | None = None
        self._turn = asyncio.Lock()
        self._all_recorded = threading.Event()

    @property
    def elapsed_s(self) -> float:
        """How long the users have been at it."""
        return 0.0 if self._began is None else time.monotonic() - self._began

    def rows(self) -> list[Row]:
        """Return how every stream stands now."""
        return [user.row() for user in self.users]

    async def run(self) -> None:
        """Stream every answer. Raises what the SDK raises when the server fails."""
        # Neither a proxy nor a key of this machine has a part in this.
        async with DefaultAsyncHttpxClient(trust_env=False) as http:
            clients = [self._client(user, http) for user in self.users]
            await clients[0].models.list()  # what only a first call takes is over before the clock starts
            self._began = time.monotonic()
            try:
                await asyncio.gather(*map(self._read, self.users, clients))
            except KeyboardInterrupt:
                # Before Python 3.11, Ctrl-C strikes whichever task is running, and asyncio reports the others.
                raise asyncio.CancelledError from None
        await asyncio.to_thread(self._all_recorded.wait, PATIENCE_S)

    def _client(self, user: User, http: DefaultAsyncHttpxClient) -> AsyncOpenAI:
        return monitor(
            AsyncOpenAI(base_url=self._base_url, api_key="none", http_client=http, max_retries=0),
            freeze_after_s=self.plan.freeze_after_s,
            on_freeze=partial(self._froze, user),
            on_thaw=partial(self._thawed, user),
            on_end=partial(self._ended, user),
        )

    async def _read(self, user: User, client: AsyncOpenAI) -> None:
        await asyncio.sleep(user.recorded.start_s / self.plan.speed)
        async with self._turn:  # the server hands the recorded streams out in the order in which it is asked
            user.asked_s = self.elapsed_s
            stream = await client.chat.completions.create(
                model=self.plan.load.name,
                messages=[{"role": "user", "content": "Tell me a long story."}],
                max_tokens=user.recorded.answer_tokens,
                stream=True,
                stream_options={"include_usage": True},
            )
            user.opened()
        async for _ in stream:
            user.received()

    def _froze(self, user: User, freeze: Freeze) -> None:
        if freeze.hidden:  # told afterwards, and counted apart
            self._say(f"stream {user.number} was silent for {freeze.gap_s:.2f} s while its client was busy")
            return
        self._say(f"stream {user.number} froze: silent for {freeze.gap_s:.2f} s so far")
        self.scraped = self.elapsed_s, scrape(self.metrics_url)

    def _thawed(self, user: User, freeze: Freeze) -> None:
        user.thawed(freeze)
        self._say(f"stream {user.number} goes on after {freeze.gap_s:.2f} s of silence")

    def _ended(self, user: User, record: StreamRecord) -> None:
        user.record = record
        if record.outcome != Outcome.CANCELLED:  # whoever presses Ctrl-C knows
            self._say(f"stream {user.number} ended: {record.outcome} after {record.duration_s:.2f} s")
        if all(each.record for each in self.users):
            self._all_recorded.set()

    def _say(self, what: str) -> None:
        self._tell(f"{self.elapsed_s:6.2f} s  {what}")


def scrape(url: str) -> str:
    """Return the page that Prometheus gets, without the help of a proxy."""
    address = urlsplit(url)
    connection = HTTPConnection(address.hostname or "", address.port, timeout=PATIENCE_S)
    try:
        connection.request("GET", address.path)
        return connection.getresponse().read().decode()
    finally:
        connection.close()
