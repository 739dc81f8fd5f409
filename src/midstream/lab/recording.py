"""What a recorded HTTP exchange is, and how its file is parsed.

The file holds JSON lines: the request, then status and headers, then one line per SSE line with its arrival
`t`, in seconds after the request was sent; last lines may say how the exchange ended.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby, pairwise
from types import MappingProxyType
from typing import Literal, TypeAlias
from urllib.parse import urlsplit

from midstream._support.sanitize import clean, valid_name
from midstream.lab._lines import RecordingError, RecordingLine, read_lines, shown

__all__ = ["PATHS", "Arrival", "Ending", "Operation", "Recording", "RecordingError", "parse_stream"]

Operation: TypeAlias = Literal["chat", "text_completion", "responses"]
"""What was asked of the server."""

Ending: TypeAlias = Literal["closed", "client_abort", "unknown"]
"""Who ended the exchange: the server, the client that recorded it, or the file does not say."""

PATHS: Mapping[Operation, str] = MappingProxyType(
    {"chat": "/v1/chat/completions", "text_completion": "/v1/completions", "responses": "/v1/responses"}
)
"""Where an OpenAI-compatible server answers each operation."""

_UNREPEATABLE = frozenset(
    {"connection", "content-length", "date", "keep-alive", "server", "transfer-encoding"}
)
"""Headers that belong to the recorded connection; the server that replays sends its own."""


_HEADER_NAME = re.compile(r"[a-z0-9!#$%&'*+.^_`|~-]{1,200}")
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e\xa0-\xff]{0,8192}")
"""No line break, which would begin another header, and nothing that Latin-1 cannot write."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """Bytes that reached the client in one instant, `at_s` seconds after it had sent its request."""

    at_s: float
    data: bytes


@dataclass(frozen=True, slots=True)
class Recording:
    """One answer of a real server. Times are seconds after the request was sent.

    `name` is what the recording is called, `model` the model that was asked, and `server` the address that
    answered (empty where the file does not say).
    """

    name: str
    operation: Operation
    model: str
    server: str
    status: int
    headers: tuple[tuple[str, str], ...]
    headers_at_s: float
    arrivals: tuple[Arrival, ...]
    ended_at_s: float
    ending: Ending

    @property
    def is_stream(self) -> bool:
        """True when the server streamed, false when it refused with a plain answer."""
        return any(name == "content-type" and "event-stream" in value for name, value in self.headers)

    @property
    def longest_gap_s(self) -> float:
        """The longest time between two arrivals."""
        return max((late.at_s - early.at_s for early, late in pairwise(self.arrivals)), default=0.0)


def parse_stream(text: str, *, name: str, source: str) -> Recording:
    """Return the recording in `text`; `source` names the file in errors.

    Raises RecordingError when the text is not a recording.
    """
    lines = read_lines(text, source)
    if len(lines) < 2:
        raise lines[0].wrong("nothing follows the request; line 2 must hold status and headers")
    asked, answered, *rest = lines
    asked.keys_within({"request"})
    request = asked.inside("request")
    written = request.text("url")
    try:
        url = urlsplit(written)
    except ValueError:
        raise asked.wrong(f"`url` must be a URL, got {shown(written)}") from None
    headers_at_s = answered.seconds("t")
    arrivals, ended_at_s, ending = _body(rest, headers_at_s)
    return Recording(
        name=name,
        operation=_operation(asked, url.path),
        model=request.inside("body").name("model"),
        server=valid_name(url.netloc.rpartition("@")[2]),
        status=_status(answered),
        headers=_headers(answered),
        headers_at_s=headers_at_s,
        arrivals=arrivals,
        ended_at_s=ended_at_s,
        ending=ending,
    )


def _operation(asked: RecordingLine, path: str) -> Operation:
    for operation, known in PATHS.items():
        if path.endswith(known.removeprefix("/v1")):
            return operation
    raise asked.wrong(
        f"it asked for {clean(path)}, which cannot be replayed; only {', '.join(PATHS.values())} can"
    )


def _status(answered: RecordingLine) -> int:
    answered.keys_within({"t", "status", "headers"})
    status = answered.fields.get("status")
    if type(status) is not int or not 200 <= status <= 599:
        raise answered.wrong(f"`status` must be an HTTP status from 200 to 599, got {shown(status)}")
    return status


def _headers(answered: RecordingLine) -> tuple[tuple[str, str], ...]:
    headers = answered.inside("headers")
    lowered = [(name.lower(), headers.text(name)) for name in headers.fields]
    for name, value in lowered:
        if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
            raise answered.wrong(f"the header {clean(name)!r} holds characters that no header has; delete it")
    return tuple((name, value) for name, value in lowered if name not in _UNREPEATABLE)


def _body(rest: Iterable[RecordingLine], headers_at_s: float) -> tuple[tuple[Arrival, ...], float, Ending]:
    now = headers_at_s
    ending: Ending = "unknown"
    parts: list[tuple[float, bytes]] = []
    complete = False
    for line in rest:
        now = line.seconds("t", not_before=now)
        if "event" in line.fields:
            line.keys_within({"t", "event"})
            # A client that left made the server close: the first word tells who ended it.
            ending = _ending(line) if ending == "unknown" else ending
            complete = True
            continue
        line.keys_within({"t", "line", "eof_no_newline"})
        if complete:
            raise line.wrong("more output after the end of the answer; delete what follows the end")
        complete = line.fields.get("eof_no_newline") is True
        parts.append((now, (line.text("line") + ("" if complete else "\n")).encode()))
    arrivals = (
        Arrival(at_s, b"".join(data for _, data in same))
        for at_s, same in groupby(parts, lambda part: part[0])
    )
    return tuple(arrivals), now, ending


def _ending(line: RecordingLine) -> Ending:
    event = line.text("event")
    if event == "closed":
        return "closed"
    if event == "client_abort":
        return "client_abort"
    raise line.wrong(f"unknown event `{clean(event)}`; only `closed` and `client_abort` can stand here")
