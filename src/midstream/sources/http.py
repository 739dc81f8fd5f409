"""Gets a page by HTTP within a bounded time and size, and says in one sentence why it could not."""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote, urljoin, urlsplit

import requests
from requests.utils import get_environ_proxies, get_netrc_auth

from midstream._support.foreign import ForeignError, json_of, without_surrogates
from midstream._support.sanitize import Secrets, clean, secret_headers
from midstream.sources._deadline import DeadlineAdapter
from midstream.sources.address import origin, shown, url_of
from midstream.sources.connection_errors import explained

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

MAX_BYTES = 16 * 2**20
"""More than any page of metrics, and few enough to read in a moment."""
_REDIRECTS = 5
_SECRET_IN_DATA = 6
"""A shorter password may be a part of any label."""
_CHARSETS = {
    "utf-8": "utf-8",
    "utf8": "utf-8",
    "iso-8859-1": "latin-1",
    "latin-1": "latin-1",
    "latin1": "latin-1",
    "windows-1252": "cp1252",
}
"""What pages are written in. All else is read as UTF-8: Python knows encodings that take for ever to decode."""


class UnreachableError(Exception):
    """No answer could be had; the message is one sentence with the remedy."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back, whatever its status. The text holds no secret that was sent."""

    url: str
    status: int
    content_type: str
    text: str
    deadline: float
    """By `time.monotonic`: whatever is made of the answer must be made by then."""

    @property
    def error_message(self) -> str:
        """The server's own words for what is wrong, fit to be shown: `error` as Prometheus has it, or a plain text."""
        try:
            body = json_of(self.text)
        except ForeignError:
            return "" if self.text[:1000].lstrip().startswith("<") else clean(self.text)
        found = body.get("error") if isinstance(body, dict) else None
        return clean(found) if isinstance(found, str) else ""

    @property
    def error_suffix(self) -> str:
        """The same in brackets, to follow the description of a failure; empty without any."""
        return f" ({self.error_message})" if self.error_message else ""


class Getter:
    """Asks servers. `headers` go to the origin that was asked and nowhere else; they are never shown.

    A request takes `timeout_s` at most, from the call to the last byte, and all requests together take `total_s`,
    counted from the first one; without it each has its own time.
    """

    def __init__(
        self,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = 10.0,
        *,
        total_s: float | None = None,
    ) -> None:
        self._headers = dict(headers or {})
        self._timeout_s = timeout_s
        self._total_s = total_s
        self._over_at: float | None = None
        self._words = Secrets([])
        self._adapter = DeadlineAdapter()
        self._session = requests.Session()
        self._session.auth = _as_given  # or .netrc would take the place of a token
        for scheme in ("http://", "https://"):
            self._session.mount(scheme, self._adapter)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._session.close()

    def get(self, url: str, data: Mapping[str, str] | None = None) -> Answer:
        """GET the URL, or POST the form `data`. Raises UnreachableError if no whole answer comes in time."""
        deadline = self._deadline()
        asked = url
        headers, words, secrets = self._credentials(url)
        self._words = words
        with self._explaining(asked):
            for _ in range(_REDIRECTS):
                with (
                    self._adapter.until(deadline),
                    self._session.request(
                        "GET" if data is None else "POST",
                        url,
                        headers=headers,
                        data=data,
                        timeout=max(0.001, deadline - time.monotonic()),
                        allow_redirects=False,
                        stream=True,
                    ) as response,
                ):
                    target = response.headers.get("location") if response.is_redirect else None
                    if target is None:
                        text = secrets.redact(self._text(response, url, deadline))
                        if response.status_code != 200:  # words, and no data
                            text = words.redact(text)
                        kind = clean(response.headers.get("content-type", "")).lower()
                        return Answer(url, response.status_code, kind, text, deadline)
                url = _redirected(url, target, words)
                if origin(url) != origin(asked):
                    raise UnreachableError(
                        f"{shown(asked)} redirects to {clean(words.redact(origin(url)))}; ask that address instead, "
                        "if it may have what is in your headers"
                    )
        raise UnreachableError(f"{shown(asked)} redirects without an end; check the address")

    def redact(self, text: str) -> str:
        """Return a text of the server that was asked last without anything secret that was sent to it."""
        return self._words.redact(text)

    def _deadline(self) -> float:
        now = time.monotonic()
        if self._total_s is None:
            return now + self._timeout_s
        self._over_at = self._over_at or now + self._total_s
        return min(now + self._timeout_s, self._over_at)

    @contextmanager
    def _explaining(self, asked: str) -> Iterator[None]:
        try:
            yield
        except (requests.RequestException, OSError, ValueError, LookupError, AttributeError) as error:
            # The last three are what requests fails with on headers that it does not expect.
            timed_out = self._over_at is not None and time.monotonic() >= self._over_at
            seconds = self._total_s if timed_out and self._total_s is not None else self._timeout_s
            why = explained(error, asked, seconds)
            raise UnreachableError(
                why or f"{origin(asked)} hangs up without an answer in HTTP; check the port"
            ) from error

    def _credentials(self, url: str) -> tuple[dict[str, str], Secrets, Secrets]:
        """Return the headers to send, what is not to be shown in words, and what is not to be shown in data.

        A user and password of the URL, or else of .netrc, are sent where no header authorises.
        """
        headers = dict(self._headers)
        parts = urlsplit(url)
        users = [_user_of(url)]
        if not any(name.lower() == "authorization" for name in headers):
            users.append(get_netrc_auth(url))
            user = users[0] or users[1]
            if user is not None:
                headers["Authorization"] = f"Basic {base64.b64encode(':'.join(user).encode()).decode()}"
        users += [_user_of(proxy) for proxy in get_environ_proxies(url).values()]
        passwords = [user[1] for user in users if user is not None] + [parts.password or ""]
        secret = [*secret_headers(headers), *passwords]
        names = [user[0] for user in users if user is not None]
        return (
            headers,
            Secrets([*headers.values(), *secret, *names]),
            Secrets([value for value in secret if len(value) >= _SECRET_IN_DATA]),
        )

    def _text(self, response: requests.Response, url: str, deadline: float) -> str:
        read = bytearray()
        for part in response.iter_content(65536):
            read += part
            if len(read) > MAX_BYTES:
                raise UnreachableError(
                    f"{shown(url)} sends more than {MAX_BYTES >> 20} MiB; check the address"
                )
            if time.monotonic() > deadline:
                raise requests.Timeout
        charset = _CHARSETS.get((response.encoding or "").lower(), "utf-8")
        return without_surrogates(read.decode(charset, errors="replace"))


def _redirected(url: str, target: str, words: Secrets) -> str:
    """Return where a redirect leads. Raises UnreachableError for what is no address."""
    try:
        found = urljoin(url, target)
        url_of(found.partition("#")[0].partition("?")[0])
    except ValueError:
        where = clean(words.redact(target))
        raise UnreachableError(
            f"{shown(url)} redirects to {where!r}, which is no address; check the URL, and the proxies between"
        ) from None
    return found


def _user_of(url: str) -> tuple[str, str] | None:
    parts = urlsplit(url)
    if parts.username is None and parts.password is None:
        return None
    return unquote(parts.username or ""), unquote(parts.password or "")


def _as_given(request: requests.PreparedRequest) -> requests.PreparedRequest:
    return request
