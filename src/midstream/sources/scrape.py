"""Gets a server's own `/metrics` page, and says in one sentence why it could not be read."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from midstream._support.sanitize import clean
from midstream.engines import ENGINES
from midstream.sources.address import shown, url_of
from midstream.sources.http import Answer, Getter, UnreachableError
from midstream.sources.server import NothingYetError, PageError, ServerView, view_of

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

_ENDPOINT = re.compile(r"(/v1)?(/(chat/completions|completions|responses|models))?$")


class ScrapeError(Exception):
    """The server's page could not be read; the message is one sentence with the remedy."""


@dataclass(frozen=True, slots=True)
class Scraped:
    """A server as it was between two moments, in Unix seconds: when it was asked and when the answer was there."""

    view: ServerView
    asked_at: float
    at: float


class Scraper:
    """Reads one server again and again. `url` is checked at once: ValueError if it cannot be one.

    `/v1` and what follows is taken off, and `/metrics` is put on where it is missing.
    """

    def __init__(
        self,
        url: str,
        *,
        engine: str | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = 5.0,
    ) -> None:
        base = url_of(url)
        self._url = base if base.endswith("/metrics") else f"{_ENDPOINT.sub('', base)}/metrics"
        self._engine = engine
        self._seen: str | None = None
        self._getter = Getter(headers, timeout_s)

    @property
    def url(self) -> str:
        """What is asked, as it may be shown."""
        return shown(self._url)

    def __enter__(self) -> Self:
        self._getter.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._getter.__exit__(kind, error, trace)

    def read(self) -> Scraped:
        """Read the page now. Raises ScrapeError."""
        asked_at = time.time()
        try:
            answer = self._getter.get(self._url)
        except UnreachableError as error:
            raise ScrapeError(str(error)) from error
        at = time.time()
        if answer.status != 200:
            raise ScrapeError(_refused(answer, self.url))
        try:
            view = self._view(answer)
        except PageError as error:
            raise ScrapeError(f"{self.url} is {error}") from error
        self._seen = view.engine
        return Scraped(view, asked_at, at)

    def _view(self, answer: Answer) -> ServerView:
        try:
            return view_of(answer.text, answer.content_type, engine=self._engine, deadline=answer.deadline)
        except NothingYetError:
            # A restarted server has nothing to be recognised by, and is what it was.
            if self._seen is None:
                raise
            return view_of(answer.text, answer.content_type, engine=self._seen, deadline=answer.deadline)


def _refused(answer: Answer, url: str) -> str:
    if answer.status in (401, 403):
        return (
            f"{url} answers {answer.status}: it wants a key; give it with --header, or MIDSTREAM_SERVER_TOKEN"
        )
    hints = [
        facts.metrics_missing[answer.status]
        for facts in ENGINES.values()
        if answer.status in facts.metrics_missing
    ]
    if answer.status == 404:
        return (
            f"{url} answers 404: there are no metrics; {', '.join(hints)}, Ollama has none, "
            "and behind a proxy the engine's own address is needed"
        )
    if hints and "--metrics" in answer.text:
        return f"{url} answers {answer.status}: {'; or '.join(hints)}"
    said = "" if "html" in answer.content_type else clean(answer.text)[:80]
    return f"{url} answers {answer.status}{f' ({said})' if said else ''}; see the server's log"
