"""What went wrong, each in one sentence: what, where, and what to do.

Exceptions are told apart by the names of their classes, since those of the HTTP library are httpx's with some
versions of the openai SDK and httpx2's with others.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from json import JSONDecodeError

from midstream._support.sanitize import clean
from midstream.probe.patience import NoOutputError
from midstream.probe.refusal import is_web_page
from midstream.sources.address import host_of, origin, shown
from midstream.stream.model import Outcome, StreamRecord

_TIMEOUTS = {"APITimeoutError", "TimeoutException", "TimeoutError"}
_TRANSPORT = {"APIConnectionError", "TransportError", "ConnectionError"}
_BAD_URLS = {"InvalidURL", "UnsupportedProtocol"}


def unreachable(exc: BaseException, url: str, timeout_s: float) -> str | None:
    """Say why no answer came at all; None if this exception means something else."""
    causes = tuple(_causes(exc))
    where = origin(url)
    for cause in causes:
        if isinstance(cause, socket.gaierror):
            return f"no host is called {host_of(url)}; check how it is spelt, or the DNS of this machine"
        if isinstance(cause, ssl.SSLCertVerificationError):
            return (
                f"{where} shows a certificate that is not trusted here ({cause.verify_message}); "
                "name a file with its authority's certificate in SSL_CERT_FILE"
            )
        if isinstance(cause, ssl.SSLError):
            return f"{where} does not speak TLS as expected; write http:// if it has none"
        if isinstance(cause, ConnectionRefusedError):
            return f"nothing listens at {where}; start the server there, or check host and port"
    if _is(causes, {"ConnectTimeout"}):
        return f"{where} cannot be reached; check host and port, and the firewalls between"
    if _is(causes, _TIMEOUTS):
        return (
            f"{shown(url)} did not answer within {timeout_s:g} s; "
            "see whether the server is overloaded, or raise --timeout"
        )
    if _is(causes, _BAD_URLS):
        return f"{shown(url)} is not a URL that can be asked; write it like http://localhost:8000"
    if not _is(causes, _TRANSPORT):
        return None
    if _is(causes, {"ConnectError"}):
        reason = next(
            (cause.strerror for cause in causes if isinstance(cause, OSError) and cause.strerror), ""
        )
        return f"{where} cannot be reached{_because(reason)}; check host and port, and the network"
    return f"{where} hangs up without an answer in HTTP; check the port, and whether it wants https://"


def is_untrusted(exc: BaseException) -> bool:
    """Return whether the server was reached but its certificate is not trusted."""
    return any(isinstance(cause, ssl.SSLCertVerificationError) for cause in _causes(exc))


def broken(exc: BaseException, url: str, timeout_s: float, secret: str | None) -> str | None:
    """Say why a stream that had begun failed; None if this exception means something else."""
    causes = tuple(_causes(exc))
    where = shown(url)
    if isinstance(exc, NoOutputError):
        return (
            f"{where} sent no output for {timeout_s:g} s, and kept the connection busy with comments or empty events; "
            "see the server's log, or raise --timeout to wait longer"
        )
    if _is(causes, _TIMEOUTS):
        return f"{where} sent nothing for {timeout_s:g} s while streaming; raise --timeout to wait longer"
    if _is(causes, _TRANSPORT):
        return f"{where} broke off while streaming; see the server's log, and that of any proxy between"
    if _is(causes, {"APIError"}):
        said = clean(str(getattr(exc, "message", "")), secret)
        return f"{where} failed while streaming{_because(said)}; see the server's log"
    if isinstance(exc, (JSONDecodeError, UnicodeDecodeError)):
        return f"{where} streams events that are not JSON; check that it is an OpenAI-compatible server"
    return None


def unfinished(record: StreamRecord, url: str, content_type: str) -> str | None:
    """Say what is wrong with a stream that ended by itself; None if it is complete, or we ended it."""
    if record.outcome is Outcome.EMPTY and is_web_page(content_type):
        return f"{shown(url)} answers with a web page, not with an API; check the URL"
    if record.outcome is Outcome.EMPTY and "event-stream" not in content_type:
        return (
            f"{shown(url)} does not stream: it answers stream=true with {_kind(content_type)}; "
            "switch streaming on in the server, or in the proxy before it"
        )
    if record.outcome is Outcome.EMPTY:
        return f"{shown(url)} ended the stream without having sent anything; see the server's log"
    if record.outcome is Outcome.NO_FINISH and record.content_chunks == 0:
        return (
            f"{shown(url)} sent {record.chunks} events without any output or finish; "
            "check that it is an OpenAI-compatible server, or try another --api"
        )
    if record.outcome is Outcome.NO_FINISH:
        return (
            f"{shown(url)} ended the stream without a finish reason: "
            "the answer was cut, or the server gives none; see its log"
        )
    if record.outcome is Outcome.ERROR:
        return f"{shown(url)} reported an error while streaming; see the server's log"
    return None


def _kind(content_type: str) -> str:
    return clean(content_type.partition(";")[0]) or "no content type"


def _because(reason: str) -> str:
    return f" ({reason})" if reason else ""


def _is(causes: tuple[BaseException, ...], names: set[str]) -> bool:
    return any(kind.__name__ in names for cause in causes for kind in type(cause).__mro__)


def _causes(exc: BaseException | None, depth: int = 10) -> Iterator[BaseException]:
    """Yield the exception, what it came from, and the members of groups on the way."""
    while exc is not None and depth:
        yield exc
        for member in getattr(exc, "exceptions", ()):
            yield from _causes(member, depth - 1)
        exc = exc.__cause__ or exc.__context__
        depth -= 1
