"""What a server may send in answer to one request: so many bytes, uncompressed, in UTF-8.

The HTTP library of the SDK reads whatever comes, decompresses it, and decodes it by any charset that Python knows. Its
responses are bounded here, before it reads them.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any

from midstream.probe.plan import Plan, ProbeError
from midstream.sources.address import shown

MOST_BYTES = 4 * 2**20
"""Of a list of models, a refusal, or a stream of few tokens."""
BYTES_PER_TOKEN = 8192
"""Of a stream; an event with one token takes some hundred."""
IDENTITY = {"Accept-Encoding": "identity"}
"""The header that asks for no compression: a small answer could become a large one."""


class Limits:
    """A hook for responses of httpx and httpx2."""

    def __init__(self, plan: Plan) -> None:
        self._most = MOST_BYTES + BYTES_PER_TOKEN * plan.max_tokens

    async def __call__(self, response: Any) -> None:
        """Bound what is read of the response. Raises ProbeError for a compressed one."""
        where = shown(str(response.url))
        encoding = response.headers.get("content-encoding", "identity").strip().lower()
        if encoding not in {"", "identity"}:
            raise ProbeError(f"{where} compresses its answer unasked; see the proxy before the server")
        kind = response.headers.get("content-type", "")
        if "charset" in kind.lower():
            response.headers["content-type"] = re.sub(r"(?i)charset[^;]*", "charset=utf-8", kind)
        # The base class that the library wants its streams to have, whichever library it is.
        base = next(each for each in type(response.stream).__mro__ if each.__name__ == "AsyncByteStream")
        response.stream = _bounded(base)(response.stream, self._most, where)


def _bounded(base: type) -> Any:
    class BoundedStream(base):  # type: ignore[misc]
        def __init__(self, stream: Any, most: int, where: str) -> None:
            self._stream = stream
            self._most = most
            self._where = where

        async def __aiter__(self) -> AsyncIterator[bytes]:
            read = 0
            async for part in self._stream:
                read += len(part)
                if read > self._most:
                    raise ProbeError(f"{self._where} sends more than {self._most >> 20} MiB; check the URL")
                yield part

        async def aclose(self) -> None:
            await self._stream.aclose()

    return BoundedStream
