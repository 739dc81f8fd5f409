"""The exception of a stall timeout. For each library it is that library's own timeout error as well."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from midstream.stream.model import Phase


class StreamStalled(TimeoutError):  # noqa: N818 - what has happened, as users look for it
    """The server sent no output for as long as `stall_timeout_s` or `first_content_timeout_s` allows.

    The connection is closed. For each library the exception is a subclass of that library's read timeout too
    (`openai.APITimeoutError`, `httpx.ReadTimeout`, `aiohttp.ServerTimeoutError`, `requests.ReadTimeout`).
    """

    gap_s: float
    """How long the caller had waited for output, in seconds."""
    phase: Phase
    """What the stream was producing before it fell silent; `text` if there was no output yet."""
    content_chunks: int
    """Chunks with output that the caller got. 0: a retry repeats nothing that was shown."""

    def __init__(self, message: str, *, gap_s: float, phase: Phase, content_chunks: int) -> None:
        super().__init__(message)
        self._describe(gap_s, phase, content_chunks)

    def _describe(self, gap_s: float, phase: Phase, content_chunks: int) -> None:
        self.gap_s = gap_s
        self.phase = phase
        self.content_chunks = content_chunks

    def __reduce__(self) -> Any:
        bases = () if type(self) is StreamStalled else type(self).__bases__[1:]
        names = tuple((base.__module__, base.__qualname__) for base in bases)
        return _blank, (names, self.args), dict(self.__dict__)


class LibraryTimeout(NamedTuple):
    """The timeout error of one library, and what it is made with."""

    kind: type[Exception]
    keywords: Mapping[str, Any]
    takes_message: bool = True
    beneath: type[Exception] | None = None
    """The timeout error of the HTTP library beneath, which the SDK passes on in the middle of a stream."""


def stalled(
    message: str, gap_s: float, phase: Phase, content_chunks: int, library: LibraryTimeout | None
) -> StreamStalled:
    """The exception for a stream of this library; None for one of unknown make."""
    if library is None:
        return StreamStalled(message, gap_s=gap_s, phase=phase, content_chunks=content_chunks)
    bases: tuple[Any, ...] = (library.kind,) if library.beneath is None else (library.kind, library.beneath)
    made = _class_for(*bases)
    error = made.__new__(made)
    library.kind.__init__(error, *((message,) if library.takes_message else ()), **library.keywords)
    error.args = (message,)
    if "message" in vars(error):
        error.message = message  # type: ignore[attr-defined]  # the openai SDK's
    error._describe(gap_s, phase, content_chunks)
    return error


@lru_cache(maxsize=16)
def _class_for(*bases: Any) -> type[StreamStalled]:
    if not bases:
        return StreamStalled
    about = {"__module__": StreamStalled.__module__, "__doc__": StreamStalled.__doc__}
    return type(StreamStalled.__name__, (StreamStalled, *bases), about)


def _blank(names: tuple[tuple[str, str], ...], args: tuple[Any, ...]) -> StreamStalled:
    """The pickled exception before it gets its attributes."""
    made = _class_for(*(getattr(importlib.import_module(module), name) for module, name in names))
    error = made.__new__(made)
    error.args = args
    return error
