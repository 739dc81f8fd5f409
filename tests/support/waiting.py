"""Waiting for what another thread or process is about to do."""

from __future__ import annotations

import time
from collections.abc import Callable


def until(holds: Callable[[], object], timeout_s: float = 10.0) -> None:
    """Return as soon as `holds()` is true. Raises AssertionError if it is not within `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while not holds():
        if time.monotonic() > deadline:
            raise AssertionError(f"still not so after {timeout_s} s")
        time.sleep(0.01)  # another thread's or process's doing has no event to wait for
