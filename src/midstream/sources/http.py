"""Gets a page by HTTP within a bounded time and size, and says in one sentence why it could not."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit

import requests

from midstream._support.sanitize import clean
from midstream.sources._deadline import WholeHeadAdapter, handle_of, hung_up_at
from midstream.sources.address import origin, shown

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

MAX_BYTES = 64 * 2**20
"""More than any page of metrics, and few enough to hold."""
_REDIRECTS = 5
_SECRET = 4
"""A shorter value of a header is no secret, and may be a part of any word."""


class UnreachableError(Exception):
    """No answer could be had; the message is one sentence with the remedy."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back, whatever its status."""

    url: str
    status: int
    content_type: str
    text: str

    @property
    def complaint(self) -> str:
        """The server's own words for what is wrong, fit to be shown: `error` as Prometheus has it, or a plain text."""
        try:
            body = json.loads(self.text)
        except (ValueError, RecursionError):
            return "" if self.text.lstrip().startswith("<") else clean(self.text)
        said = body.get("error") if isinstance(body, dict) else None
        return clean(said) if isinstance(said, str) else ""

    @property
    def because(self) -> str:
        """The same in brackets, to follow what is said of the failure; empty without any."""
        return f" ({self.complaint})" if self.complaint else ""


class Getter:
    """Asks servers. `headers` go to the origin that was asked and nowhere else; they are never shown."""

    def __init__(self, headers: Mapping[str, str] | None = None, timeout_s: float = 10.0) -> None:
        self._headers = dict(headers or {})
        self._timeout_s = timeout_s
        self._session = requests.Session()
        for scheme in ("http://", "https://"):
            self._session.mount(scheme, WholeHeadAdapter())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._session.close()

    def get(self, url: str, data: Mapping[str, str] | None = None) -> Answer:
        """GET the URL, or POST the form `data`. Raises UnreachableError if no whole answer comes in time."""
        deadline = time.monotonic() + self._timeout_s
        asked = url
        try:
            for _ in range(_REDIRECTS):
                with self._session.request(
                    "GET" if data is None else "POST",
                    url,
                    headers=self._headers,
                    data=data,
                    timeout=self._timeout_s,
                    allow_redirects=False,
                    stream=True,
                ) as response:
                    target = response.headers.get("location") if response.is_redirect else None
                    if target is None:
                        text = self._body(response, deadline, asked)
                        kind = response.headers.get("content-type", "")
                        if response.status_code != 200:  # words, and no data
                            text = self._without_secrets(text)
                        return Answer(url, response.status_code, kind, text)
                    url = urljoin(url, target)
                if origin(url) != origin(asked):
                    raise UnreachableError(
                        f"{shown(asked)} redirects to {origin(url)}; ask that address instead, if it may have what "
                        "is in your headers"
                    )
        except requests.RequestException as error:
            raise UnreachableError(_why(error, asked, self._timeout_s)) from error
        raise UnreachableError(f"{shown(asked)} redirects without an end; check the address")

    def _without_secrets(self, text: str) -> str:
        """Take out what was sent in a header: a server that refuses it may repeat it, and its words are shown."""
        for value in self._headers.values():
            for secret in (value, value.rpartition(" ")[2]):
                if len(secret) >= _SECRET:
                    text = text.replace(secret, "***")
        return text

    def _body(self, response: requests.Response, deadline: float, asked: str) -> str:
        read = bytearray()
        with _ended_at(deadline, response):
            for part in response.iter_content(65536):
                read += part
                if len(read) > MAX_BYTES:
                    raise UnreachableError(
                        f"{shown(asked)} sends more than {MAX_BYTES >> 20} MiB; check the address"
                    )
                if time.monotonic() > deadline:
                    raise requests.Timeout
        try:
            return read.decode(response.encoding or "utf-8", errors="replace")
        except LookupError:  # a charset that does not exist
            return read.decode("utf-8", errors="replace")


def _ended_at(deadline: float, response: requests.Response) -> AbstractContextManager[None]:
    try:
        return hung_up_at(deadline, handle_of(response.raw.fileno()))
    except (OSError, ValueError, AttributeError):  # nothing is left to be read
        return nullcontext()


def _why(error: BaseException, url: str, timeout_s: float) -> str:
    where = origin(url)
    causes = tuple(_causes(error))
    if any(isinstance(cause, socket.gaierror) for cause in causes):
        host = urlsplit(url).hostname
        return f"no host is called {host}; check how it is spelt, or the DNS of this machine"
    if any(isinstance(cause, ConnectionRefusedError) for cause in causes):
        return f"nothing listens at {where}; start the server there, or check host and port"
    if isinstance(error, requests.exceptions.ConnectTimeout):
        return f"{where} cannot be reached; check host and port, and the firewalls between"
    if isinstance(error, requests.Timeout):
        return f"{shown(url)} did not answer within {timeout_s:g} s; is the server overloaded?"
    if isinstance(error, requests.exceptions.ProxyError):
        return f"the proxy before {where} cannot be reached; see HTTP_PROXY, HTTPS_PROXY and NO_PROXY"
    if isinstance(error, requests.exceptions.SSLError):
        return (
            f"{where} does not speak TLS as expected, or shows a certificate that is not trusted here; "
            "write http:// if it has none, or name its authority's file in REQUESTS_CA_BUNDLE"
        )
    if isinstance(error, requests.exceptions.InvalidURL):
        return f"{shown(url)} is not a URL that can be asked; write it like http://localhost:8000"
    return f"{where} hangs up without an answer in HTTP; check the port, and whether it wants https://"


def _causes(error: BaseException | None, depth: int = 10) -> Iterator[BaseException]:
    while error is not None and depth:
        yield error
        # urllib3 keeps what happened in `reason`, and requests keeps urllib3's error as its argument.
        for inner in (*error.args, getattr(error, "reason", None)):
            if isinstance(inner, BaseException):
                yield from _causes(inner, depth - 1)
        error = error.__cause__ or error.__context__
        depth -= 1
