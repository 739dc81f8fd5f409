"""Splits the body of an answer into events as its pieces come in. Pure, and bounded in memory.

`EventSplitter` reads server-sent events (WHATWG HTML, section 9.2.6): lines end in LF, CR or CRLF, an event ends with
an empty line, its `data` lines are joined, comments and other fields are passed over. `LineSplitter` reads one JSON
document per line, as Ollama sends them.
"""

from __future__ import annotations

LONGEST_EVENT = 1 << 20
"""Bytes of one event. A longer one is passed over: it is no output, and its bytes are not kept."""

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class _Lines:
    """Lines that are complete, out of pieces that end anywhere. Keeps the bytes of one unfinished line at most."""

    __slots__ = ("_after_cr", "_begun", "_partial", "_skipping")

    def __init__(self) -> None:
        self._partial = bytearray()
        self._after_cr = (
            False  # the piece before ended in CR: an LF at the beginning of this one belongs to it
        )
        self._skipping = False  # in a line that is too long
        self._begun = False

    @property
    def pending(self) -> bool:
        """Whether an unfinished line is kept, or passed over."""
        return bool(self._partial) or self._skipping or self._after_cr

    def split(self, piece: bytes) -> list[bytes | None]:
        """The lines that end in this piece, without their ends; None for each line that was too long."""
        if self._after_cr and piece:
            self._after_cr = False
            if piece[:1] == b"\n":
                piece = piece[1:]
        if not piece:
            return []
        found: list[bytes | None] = []
        lines = piece.splitlines(keepends=True)
        self._after_cr = lines[-1].endswith(b"\r")
        for line in lines:
            ended = line[-1] in b"\r\n"
            text = line.rstrip(b"\r\n") if ended else line
            if self._skipping or len(self._partial) + len(text) > LONGEST_EVENT:
                self._partial.clear()
                self._skipping = not ended
                if ended:
                    found.append(None)
            elif not ended:
                self._partial += text
            elif self._partial:
                self._partial += text
                found.append(bytes(self._partial))
                self._partial.clear()
            else:
                found.append(text)
        if not self._begun and found:
            self._begun = True
            first = found[0]
            if first is not None and first.startswith(_BYTE_ORDER_MARK):
                found[0] = first[len(_BYTE_ORDER_MARK) :]
        return found


class EventSplitter:
    """Server-sent events out of pieces of bytes."""

    __slots__ = ("_data", "_lines", "_name", "_size", "_spoiled")

    def __init__(self) -> None:
        self._lines = _Lines()
        self._data: list[bytes] = []
        self._size = 0
        self._name = b""
        self._spoiled = False

    @property
    def pending(self) -> bool:
        """Whether part of an event has come, and not its end."""
        return bool(self._data) or self._spoiled or bool(self._name) or self._lines.pending

    def split(self, piece: bytes) -> list[tuple[bytes, bytes]]:
        """The events that end in this piece: the name of each (empty if it has none) and its data."""
        found = []
        for line in self._lines.split(piece):
            if line is None:
                self._spoil()
            elif not line:
                if self._data and not self._spoiled:
                    found.append((self._name, b"\n".join(self._data)))
                self._forget()
            elif line.startswith(b"data"):
                self._field(line)
            elif line.startswith(b"event:"):
                self._name = line[6:].removeprefix(b" ")[:64]
        return found

    def rest(self) -> list[tuple[bytes, bytes]]:
        """An event that the end of the body cuts off is none (the standard discards it)."""
        return []

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        if name != b"data" or self._spoiled:
            return
        value = value.removeprefix(b" ")
        self._size += len(value) + 1
        if self._size > LONGEST_EVENT:
            self._spoil()
        else:
            self._data.append(value)

    def _spoil(self) -> None:
        self._data.clear()
        self._spoiled = True

    def _forget(self) -> None:
        self._data.clear()
        self._size = 0
        self._name = b""
        self._spoiled = False


class LineSplitter:
    """One JSON document per line, out of pieces of bytes."""

    __slots__ = ("_lines",)

    def __init__(self) -> None:
        self._lines = _Lines()

    @property
    def pending(self) -> bool:
        """Whether part of a line has come, and not its end."""
        return self._lines.pending

    def split(self, piece: bytes) -> list[tuple[bytes, bytes]]:
        """The lines that end in this piece, but for empty ones, as events without a name."""
        return [(b"", line) for line in self._lines.split(piece) if line]

    def rest(self) -> list[tuple[bytes, bytes]]:
        """The last line of a body needs no end."""
        return self.split(b"\n") if self._lines.pending else []
