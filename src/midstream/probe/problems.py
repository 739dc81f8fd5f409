"""What went wrong, each in one sentence: what, where, and what to do.

Exceptions are told apart by the names of their classes, since those of the HTTP library are httpx's with some
versions of the openai SDK and httpx2's with others.
"""

from __future__ import annotations

from midstream._support.sanitize import clean
from midstream.probe.patience import NoOutputError, TooLongError
from midstream.probe.plan import ProbeError
from midstream.probe.refusal import is_web_page
from midstream.sources.address import shown
from midstream.sources.connection_errors import causes_of, explained, has_class
from midstream.stream.model import Outcome, StreamRecord

_TIMEOUTS = {"APITimeoutError", "TimeoutException", "TimeoutError"}
_TRANSPORT = {"APIConnectionError", "TransportError", "ConnectionError"}


def unreachable(exc: BaseException, url: str, timeout_s: float) -> str | None:
    """Say why no answer came at all; None if this exception means something else."""
    refusal = next((str(cause) for cause in causes_of(exc) if isinstance(cause, ProbeError)), None)
    return refusal or explained(exc, url, timeout_s, "or raise --timeout", "SSL_CERT_FILE")


def broken(exc: BaseException, url: str, timeout_s: float, secret: str | None) -> str:
    """Say why a stream that had begun failed. Whatever the SDK raises while it reads is the server's doing."""
    causes = tuple(causes_of(exc))
    where = shown(url)
    refusal = next((str(cause) for cause in causes if isinstance(cause, ProbeError)), None)
    if refusal is not None:
        return refusal
    if isinstance(exc, TooLongError):
        return (
            f"{where} had not ended its answer after {exc.seconds:g} s, though it was asked for a limited one; see "
            "whether it heeds --max-tokens, or raise --timeout"
        )
    if isinstance(exc, NoOutputError):
        return (
            f"{where} sent no output for {timeout_s:g} s, and kept the connection busy with comments or empty events; "
            "see the server's log, or raise --timeout to wait longer"
        )
    if has_class(causes, _TIMEOUTS):
        return f"{where} sent nothing for {timeout_s:g} s while streaming; raise --timeout to wait longer"
    if has_class(causes, _TRANSPORT):
        return f"{where} broke off while streaming; see the server's log, and that of any proxy between"
    if has_class(causes, {"APIError"}):
        said = clean(str(getattr(exc, "message", "")), secret)
        return f"{where} failed while streaming{_because(said)}; see the server's log"
    if isinstance(exc, (ValueError, RecursionError)):
        return f"{where} streams events that are not JSON; check that it is an OpenAI-compatible server"
    kind = type(exc).__name__
    return f"{where} streams what the openai package cannot read ({kind}); check that it is an OpenAI-compatible server"


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
