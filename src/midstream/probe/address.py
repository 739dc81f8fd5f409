"""The base URLs that a server's API may be at, from what a user wrote as its address."""

from __future__ import annotations

import re

from midstream.sources.address import written

_ENDPOINT = re.compile(r"/(chat/completions|completions|responses|models)$")


def base_urls(text: str) -> tuple[str, ...]:
    """Return the base URLs that may be meant, the likeliest first. Raises ValueError with the remedy.

    Without a scheme, only a host of one's own network is tried without TLS: a key must not cross the internet
    in the clear unless the user wrote so.
    """
    found = written(text)
    path = _ENDPOINT.sub("", found.path)
    if not path:
        paths = ("/v1", "")
    elif path.endswith("/v1"):
        paths = (path, path.removesuffix("/v1"))
    else:
        paths = (path, f"{path}/v1")
    if found.scheme:
        schemes: tuple[str, ...] = (found.scheme,)
    else:
        schemes = ("http", "https") if found.is_near else ("https",)
    return tuple(f"{scheme}://{found.netloc}{path}" for scheme in schemes for path in paths)
