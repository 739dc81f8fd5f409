"""What a client reads when there is nothing to pass on: a status and an error in OpenAI's shape.

A message names the cause, and nothing of the inside: no host, no address, no path, no text of an exception.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator

REQUEST, UPSTREAM = "invalid_request_error", "upstream_error"


class RefusedRequestError(Exception):
    """A request that gets an answer of the proxy's own: which status, why, and the code of the error."""

    def __init__(self, status: int, message: str, code: str, kind: str = REQUEST) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.kind = kind


class ClientLeftError(Exception):
    """The client has left before its request was there."""


def unanswered(error: Exception, connect_s: float, head_s: float | None) -> RefusedRequestError:
    """What a client gets for a request that the upstream did not answer, by the exception of the HTTP library."""
    name = type(error).__name__
    causes = list(_causes(error))
    status, code = 502, "upstream_unreachable"
    message = "The model server cannot be reached."
    if name == "ConnectTimeout":
        status, code = 504, "upstream_connect_timeout"
        message = f"The model server did not accept a connection within {connect_s:g} s."
    elif name in {"ReadTimeout", "WriteTimeout"}:
        status, code = 504, "upstream_timeout"
        message = f"The model server did not begin to answer within {head_s or 0:g} s."
    elif any(isinstance(cause, socket.gaierror) for cause in causes):
        code, message = "upstream_unresolved", "The name of the model server cannot be resolved."
    elif any(isinstance(cause, ssl.SSLCertVerificationError) for cause in causes):
        code, message = "upstream_certificate", "The certificate of the model server cannot be verified."
    elif any(isinstance(cause, ssl.SSLError) for cause in causes):
        code, message = "upstream_tls", "The model server does not speak TLS as it should."
    elif any(isinstance(cause, ConnectionRefusedError) for cause in causes):
        code, message = "upstream_refused", "The model server refuses connections."
    elif name in {"ReadError", "WriteError", "RemoteProtocolError"}:
        code = "upstream_disconnected"
        message = "The model server closed the connection, or sent no valid HTTP, before it answered."
    return RefusedRequestError(status, message, code, UPSTREAM)


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The exception and what led to it, members of groups included."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        current = waiting.pop()
        if current is None or id(current) in seen:
            continue
        seen.add(id(current))
        yield current
        waiting += [current.__cause__, current.__context__, *getattr(current, "exceptions", ())]
