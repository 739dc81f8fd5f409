"""Runs a piece of Python in a process of its own, for what concerns a whole process."""

from __future__ import annotations

import os
import subprocess
import sys


def run(body: str, *args: str, env: dict[str, str] | None = None, launcher: tuple[str, ...] = ()) -> str:
    """Give what the piece printed. Raises AssertionError unless it exits with 0 and says nothing on standard error."""
    done = subprocess.run(
        [*launcher, sys.executable, "-c", f"import sys; sys.path[:0] = {sys.path!r}\n{body}", *args],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, **(env or {})},
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout
