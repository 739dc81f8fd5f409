"""What a server says when it does not stream: the parts of its answer that can be judged, and quoted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from midstream._support.foreign import ForeignError, json_of


class Response(Protocol):
    """The part of an HTTP response that is read here; httpx and httpx2 have it alike."""

    @property
    def status_code(self) -> int:
        """The HTTP status."""

    @property
    def headers(self) -> Mapping[str, str]:
        """The header fields."""

    @property
    def content(self) -> bytes:
        """The body."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A plain answer where a stream, or a list of models, was asked for.

    `message` is the server's own sentence, raw, or empty; `about` is all that it says of the cause, lowered.
    """

    status: int
    message: str
    about: str
    is_html: bool

    @property
    def is_final(self) -> bool:
        """Whether asking the same again is pointless."""
        return 400 <= self.status < 500 and self.status not in {408, 409, 425, 429}

    @property
    def is_elsewhere(self) -> bool:
        """Whether it only means that the API is not at this path."""
        return self.is_html or self.status in {200, 404, 405}


def refusal_of(response: Response) -> Refusal:
    """Read a refusal from the response; its body must have been read."""
    text = text_of(response)
    is_html = is_web_page(response.headers.get("content-type", "")) or text.lstrip()[:1] == "<"
    message, about = ("", "") if is_html else _complaint(text)
    return Refusal(response.status_code, message, about.lower(), is_html)


def text_of(response: Response) -> str:
    """Return the body as text, which is UTF-8 in every API: some charsets take for ever to decode."""
    return response.content.decode("utf-8", "replace")


def is_web_page(content_type: str) -> bool:
    """Whether this content type is that of a page for people."""
    return "text/html" in content_type.lower()


def _complaint(text: str) -> tuple[str, str]:
    """Return the message in an error body of any usual shape, and everything in it that names the cause."""
    try:
        body = json_of(text)
    except ForeignError:
        return text, text
    error = body.get("error") or body if isinstance(body, dict) else body
    if not isinstance(error, dict):
        said = error if isinstance(error, str) else ""
        return said, said
    message: object = error.get("message") or error.get("detail")
    if isinstance(message, list):
        message = "; ".join(_item(item) for item in message)
    said = message if isinstance(message, str) else ""
    named = [error.get(name) for name in ("param", "code", "type")]
    return said, " ".join([said, *(word for word in named if isinstance(word, str))])


def _item(item: object) -> str:
    """Return one of FastAPI's complaints, less the request that it quotes: that is not the cause."""
    if not isinstance(item, dict):
        return ""
    place = item.get("loc")
    where = ".".join(str(part) for part in place) if isinstance(place, list) else ""
    return f"{where}: {item.get('msg', '')}"
