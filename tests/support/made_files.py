"""The names of the files that are made in a directory meanwhile, those that are deleted at once included."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_IN_CREATE = 0x100
_HEADER = struct.Struct("iIII")


@contextmanager
def made_files(directory: Path) -> Iterator[set[str]]:
    """Fill the set, at the end of the block, with what was made there. Linux only (inotify)."""
    libc = ctypes.CDLL(None, use_errno=True)
    watch = libc.inotify_init1(os.O_NONBLOCK)
    names: set[str] = set()
    try:
        if watch < 0 or libc.inotify_add_watch(watch, os.fsencode(directory), _IN_CREATE) < 0:
            raise OSError(ctypes.get_errno(), "inotify", str(directory))
        yield names
        names |= set(_names(os.read(watch, 1 << 20)))
    finally:
        os.close(watch)


def _names(events: bytes) -> Iterator[str]:
    while events:
        *_, length = _HEADER.unpack_from(events)
        end = _HEADER.size + length
        yield os.fsdecode(events[_HEADER.size : end].rstrip(b"\0"))
        events = events[end:]
