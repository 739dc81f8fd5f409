"""What a record needs of a request's body: its parameters, and nothing of its texts."""

from __future__ import annotations

import json
from typing import Any

LONGEST_COPY = 16 << 20
"""Bytes of a body that are kept until it is complete. Of a longer one only the path is known."""
MOST_COPIES = 256 << 20
"""Bytes that the copies of all unfinished bodies of the process may take together."""

_kept = 0


class RequestCopy:
    """Collects a body while it passes, and is reduced to its parameters when it is complete."""

    __slots__ = ("_is_open", "_pieces", "_size", "_value", "is_wanted")

    def __init__(self, *, wanted: bool) -> None:
        self.is_wanted = wanted
        self._is_open = wanted
        self._pieces: list[bytes] = []
        self._size = 0
        self._value: Any = None

    def add(self, piece: bytes) -> None:
        """One more piece has passed."""
        global _kept  # noqa: PLW0603 - one budget for the process
        if not self._is_open or not piece:
            return
        if self._size + len(piece) > LONGEST_COPY or _kept + len(piece) > MOST_COPIES:
            self.drop()
            return
        self._pieces.append(piece)
        self._size += len(piece)
        _kept += len(piece)

    @property
    def is_open(self) -> bool:
        """Whether everything that has passed so far is kept."""
        return self._is_open

    def complete(self) -> None:
        """The body has passed: keep its parameters."""
        if self._is_open:
            try:
                value = json.loads(b"".join(self._pieces))
            except (ValueError, RecursionError):
                value = None
            self._value = _parameters(value)
            self.drop()

    def drop(self) -> None:
        """Keep no more bytes."""
        global _kept  # noqa: PLW0603
        _kept -= self._size
        self._is_open, self._pieces, self._size = False, [], 0

    def value(self) -> Any:
        """The parameters; None if the body was no JSON object, too long, or not complete."""
        return self._value


def _parameters(value: Any) -> dict[str, Any] | None:
    """The numbers, the model's name, and of everything else that it is there."""
    if not isinstance(value, dict):
        return None
    return {str(name): _reduced(str(name), each) for name, each in value.items() if len(str(name)) <= 64}


def _reduced(name: str, value: Any) -> Any:
    if _is_number(value) or (name == "model" and isinstance(value, str)):
        return value
    if isinstance(value, dict):
        return {str(key): each for key, each in list(value.items())[:32] if _is_number(each)}
    return []


def _is_number(value: Any) -> bool:
    return value is None or isinstance(value, bool | int | float)
