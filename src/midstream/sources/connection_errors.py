"""Why a server could not be reached, in one sentence with the remedy: the only place that explains it.

Errors are recognised by what caused them and by the names of their classes: those of `requests`, of httpx, and of
httpx2, which the openai SDK uses in its newer versions.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator

from midstream.sources.address import host_of, origin, shown

_TIMEOUTS = {"APITimeoutError", "TimeoutException", "TimeoutError", "Timeout"}
_TRANSPORT = {"APIConnectionError", "TransportError", "ConnectionError", "RequestException"}
_BAD_URLS = {"InvalidURL", "UnsupportedProtocol", "LocationParseError", "InvalidSchema"}


def explained(
    error: BaseException,
    url: str,
    timeout_s: float,
    raise_timeout: str = "",
    authorities: str = "REQUESTS_CA_BUNDLE",
) -> str | None:
    """Return why no answer came at all; None if this error means something else.

    `raise_timeout` is added to the sentence about a timeout, such as "or raise --timeout"; `authorities` is the
    variable that names a file of certificates.
    """
    causes = tuple(causes_of(error))
    where = origin(url)
    for cause in causes:
        if isinstance(cause, socket.gaierror):
            return f"no host is called {host_of(url)}; check how it is spelt, or the DNS of this machine"
        if isinstance(cause, ConnectionRefusedError):
            return f"nothing listens at {where}; start the server there, or check host and port"
    if has_class(causes, {"ConnectTimeout"}):
        return f"{where} cannot be reached; check host and port, and the firewalls between"
    if has_class(causes, _TIMEOUTS):
        remedy = f"see whether the server is overloaded{f', {raise_timeout}' if raise_timeout else ''}"
        return f"{shown(url)} did not answer within {timeout_s:g} s; {remedy}"
    if has_class(causes, {"ProxyError"}):
        return f"the proxy before {where} cannot be reached; see HTTP_PROXY, HTTPS_PROXY and NO_PROXY"
    for cause in causes:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return (
                f"{where} shows a certificate that is not trusted here ({cause.verify_message}); "
                f"name a file with its authority's certificate in {authorities}"
            )
    if any(isinstance(cause, ssl.SSLError) for cause in causes) or has_class(causes, {"SSLError"}):
        return f"{where} does not speak TLS as expected; write http:// if it has none"
    if has_class(causes, _BAD_URLS):
        return f"{shown(url)} is not a URL that can be asked; write it like http://localhost:8000"
    if not has_class(causes, _TRANSPORT):
        return None
    if has_class(causes, {"ConnectError", "NewConnectionError"}):
        reason = next((each.strerror for each in causes if isinstance(each, OSError) and each.strerror), "")
        return f"{where} cannot be reached{f' ({reason})' if reason else ''}; check host and port, and the network"
    return f"{where} hangs up without an answer in HTTP; check the port, and whether it wants https://"


def is_untrusted(error: BaseException) -> bool:
    """Return whether the server was reached but its certificate is not trusted."""
    return any(isinstance(cause, ssl.SSLCertVerificationError) for cause in causes_of(error))


def has_class(errors: tuple[BaseException, ...], names: set[str]) -> bool:
    """Return whether one of the errors is of a class with one of these names, or derived from it."""
    return any(kind.__name__ in names for error in errors for kind in type(error).__mro__)


def causes_of(error: BaseException | None, depth: int = 10) -> Iterator[BaseException]:
    """Yield the error, what it came from, and the members of groups on the way."""
    while error is not None and depth:
        yield error
        # urllib3 keeps what happened in `reason`, and requests keeps urllib3's error as its argument.
        inner = (*getattr(error, "exceptions", ()), *error.args, getattr(error, "reason", None))
        for each in inner:
            if isinstance(each, BaseException):
                yield from causes_of(each, depth - 1)
        error = error.__cause__ or error.__context__
        depth -= 1
