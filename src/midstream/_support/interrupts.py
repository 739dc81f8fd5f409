"""Ctrl-C while the `midstream` command is still being imported: it ends with status 130 and prints nothing.

Importing takes a part of a second, on a slow disk several. A KeyboardInterrupt in the middle of it would end in a
traceback, or be turned into another error by the library that is being imported. Nothing has been started by then, so
that the process can simply end. A program that uses midstream as a library keeps its own handling of signals.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # the library's own costs as much as all that comes before the handler
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Final, NoReturn

INTERRUPTED: Final = 130
"""The exit status after Ctrl-C: 128 and the number of the signal, as shells report it."""
_SCRIPTS = {"midstream", "midstream.exe", "midstream-script.py"}
"""What the installed command may be called."""


def exit_at_once(*_: object) -> NoReturn:
    """End the process with the status of an interrupted one; a handler for SIGINT."""
    os._exit(INTERRUPTED)


def is_command(argv: Sequence[str], original: Sequence[str]) -> bool:
    """Return whether this process was started as `midstream ...` or as `python -m midstream ...`.

    `argv` is `sys.argv`, which begins with `-m` as long as Python imports the package that it shall run; `original`
    is `sys.orig_argv`.
    """
    if argv[:1] == ["-m"]:
        return len(original) > len(argv) and original[-len(argv)] == "midstream"
    return bool(argv) and os.path.basename(argv[0]) in _SCRIPTS


def exit_at_once_if_command() -> None:
    """Let Ctrl-C end this process at once if it is the command; the command replaces this when it begins."""
    if not is_command(getattr(sys, "argv", ()), sys.orig_argv):
        return
    import signal  # noqa: PLC0415 - the library itself needs none of it

    try:
        signal.signal(signal.SIGINT, exit_at_once)
    except ValueError:  # not the main thread, so not the command
        return
