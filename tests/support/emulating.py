"""Talks to emulated engines without an SDK in between: raw events, and raw moments."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from midstream.lab.emulation import Emulated, emulator
from midstream.lab.hardware import HardwareProfile
from midstream.lab.server import serve

QUICK = HardwareProfile("quick", 0.004, 0.0, 0.0, 0.0)
"""Four milliseconds a step, whatever is in it."""


class Told:
    """An answer as it came: status, headers and their moment, and every event or comment with its moment."""

    def __init__(self, response: http.client.HTTPResponse, headers_s: float, asked: float) -> None:
        self.status = response.status
        self.headers = {name.lower(): value for name, value in response.getheaders()}
        self.headers_s = headers_s
        self.events: list[tuple[float, str]] = []
        self.whole = True
        """False if the connection broke before the end."""
        rest = b""
        try:
            while data := response.read1():
                at_s = time.monotonic() - asked
                *blocks, rest = (rest + data).split(b"\n\n")
                self.events += [(at_s, block.decode()) for block in blocks]
        except http.client.IncompleteRead:
            self.whole = False
        self.rest = rest.decode()

    @property
    def chunks(self) -> list[dict[str, Any]]:
        """The events that hold JSON."""
        data = [event.partition("data: ")[2] for _, event in self.events]
        return [json.loads(text) for text in data if text.startswith("{")]

    @property
    def json(self) -> Any:
        """The body, where it is no stream."""
        return json.loads(self.rest)

    @property
    def is_done(self) -> bool:
        """True if the end mark came, and came last."""
        return bool(self.events) and self.events[-1][1] == "data: [DONE]"


class Server:
    """An emulated engine that is being served."""

    def __init__(self, base_url: str) -> None:
        self.base_url = base_url
        self._port = urlsplit(base_url).port or 0

    def ask(self, path: str, body: object) -> Told:
        """Send a body, and return all that came back."""
        connection = self.begin(path, body)
        asked = time.monotonic()
        try:
            response = connection.getresponse()
            return Told(response, time.monotonic() - asked, asked)
        finally:
            connection.close()

    def begin(self, path: str, body: object) -> http.client.HTTPConnection:
        """Send a body, and leave the answer on its way."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=20)
        data = body if isinstance(body, str) else json.dumps(body)
        connection.request("POST", path, data, {"content-type": "application/json"})
        return connection

    def chat(self, tokens: int | None = 3, **more: Any) -> Told:
        """Stream a chat of that many tokens."""
        told = {} if tokens is None else {"emulate": {"answer_tokens": tokens, **more.pop("emulate", {})}}
        messages = [{"role": "user", "content": "say something"}]
        return self.ask(
            "/v1/chat/completions",
            {"model": "emulated", "messages": messages, "stream": True, **told, **more},
        )

    def text(self, tokens: int = 3, **more: Any) -> Told:
        """Stream a completion of that many tokens."""
        body = {"model": "emulated", "prompt": "say something", "stream": True, **more}
        return self.ask("/v1/completions", {"emulate": {"answer_tokens": tokens}, **body})

    def page(self, path: str = "/metrics") -> tuple[int, str, str]:
        """Return status, content type and body of a page."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=20)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.getheader("content-type", ""), response.read().decode()
        finally:
            connection.close()


@contextmanager
def emulating(
    engine: str,
    *,
    hardware: HardwareProfile = QUICK,
    keep_alive_s: float | None = None,
    speed: float = 1.0,
    **flags: Any,
) -> Iterator[Server]:
    """Serve an engine for as long as the block lasts."""
    emulated = Emulated(engine, flags, hardware, keep_alive_s=keep_alive_s, speed=speed)
    with serve(emulator(emulated)) as base_url:
        yield Server(base_url)
