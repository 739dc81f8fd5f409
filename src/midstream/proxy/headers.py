"""Which headers are passed on, in both directions (RFC 9110, sections 7.6 and 10.1.1; RFC 9112). Pure.

Everything is passed on as it came but for what belongs to one connection, `Host`, `Expect`, and the forwarding headers.
"""

from __future__ import annotations

from collections.abc import Iterable

from midstream.proxy.faults import RefusedRequestError

Headers = list[tuple[bytes, bytes]]

_HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
_NEVER_BY_NAME = frozenset(
    {b"content-length", b"content-type", b"content-encoding", b"authorization", b"host"}
)
"""What a `Connection` header must not take away: the message would mean something else."""


def value_of(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> bytes | None:
    """The first value of this header."""
    return next((value for key, value in headers if key.lower() == name), None)


def end_to_end(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """The headers without those of the connection, in their order."""
    headers = list(headers)
    named = {
        token.strip().lower()
        for name, value in headers
        if name.lower() == b"connection"
        for token in value.split(b",")
    }
    left_out = _HOP_BY_HOP | (named - _NEVER_BY_NAME)
    return [(name, value) for name, value in headers if name.lower() not in left_out]


def client_headers(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """The headers of an answer to the client. A length beside chunks means nothing, and other programs might use it."""
    headers = list(headers)
    in_chunks = any(name.lower() == b"transfer-encoding" for name, _ in headers)
    passed = end_to_end(headers)
    return [(name, value) for name, value in passed if not (in_chunks and name.lower() == b"content-length")]


def check_framing(headers: Iterable[tuple[bytes, bytes]], http_version: str) -> bool:
    """Return whether the request has a body. Raises RefusedRequestError where two readers could disagree about it."""
    lengths = [value for name, value in headers if name == b"content-length"]
    codings = [value for name, value in headers if name == b"transfer-encoding"]
    if codings and lengths:
        raise RefusedRequestError(
            400, "The request has both Content-Length and Transfer-Encoding.", "bad_framing"
        )
    if codings and http_version != "1.1":
        raise RefusedRequestError(400, "Transfer-Encoding needs HTTP/1.1.", "bad_framing")
    return bool(codings) or any(length.strip(b" 0") for length in lengths)


def upstream_headers(headers: Headers, authority: bytes, *, client: str, scheme: str, via: bytes) -> Headers:
    """The headers of a request to the upstream: `Host` is the upstream's, who asked is added as reverse proxies do."""
    passed: Headers = [(b"Host", authority)]
    if any(name == b"transfer-encoding" for name, _ in headers):
        passed.append((b"Transfer-Encoding", b"chunked"))
    forwarded_for = [value for name, value in headers if name == b"x-forwarded-for"]
    before = {name for name, _ in headers}
    ours = {b"host", b"expect", b"x-forwarded-for", b"via"}
    passed += [(name, value) for name, value in end_to_end(headers) if name not in ours]
    hops = [*forwarded_for, *([client.encode("ascii", "replace")] if client else [])]
    if hops:
        passed.append((b"X-Forwarded-For", b", ".join(hops)))
    if b"x-forwarded-proto" not in before:
        passed.append((b"X-Forwarded-Proto", scheme.encode("ascii")))
    host = value_of(headers, b"host")
    if b"x-forwarded-host" not in before and host is not None:
        passed.append((b"X-Forwarded-Host", host))
    vias = [value for name, value in headers if name == b"via"]
    passed.append((b"Via", b", ".join([*vias, via])))
    return passed
