"""The command line: one package or module for each command, and what they share in `common`.

A command parses its options, calls the package that does the work, and prints. This module finds the command that is
asked for and turns every error into one sentence and an exit status. To add a command, write it in a module of its own
and name it in COMMANDS; it raises CliError for what the user can act on, and returns None or an exit status.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from signal import SIG_IGN
from types import MappingProxyType

from midstream import __version__
from midstream._support.interrupts import INTERRUPTED, exit_at_once
from midstream._support.sanitize import printable
from midstream.cli.common.errors import explain, unwritable
from midstream.cli.common.interrupts import caused_by_interrupt, delivered_again, handle

__all__ = ["COMMANDS", "Command", "main"]


@dataclass(frozen=True, slots=True)
class Command:
    """Where a command lives, its line in the overview, and the extras that it needs.

    It is imported only when it is asked for.
    """

    module: str
    function: str
    help: str
    extras: tuple[str, ...] = ("cli",)


_CLI = "midstream.cli"

COMMANDS: Mapping[str, Command] = MappingProxyType(
    {
        "advise": Command(
            f"{_CLI}.advise",
            "advise",
            "Choose max_tokens, a stall timeout, a concurrency cap and engine flags.",
            ("cli", "lab"),
        ),
        "compare": Command(
            f"{_CLI}.compare",
            "compare",
            "Compare the streams before and after a change, with a verdict.",
        ),
        "dashboard": Command(
            f"{_CLI}.dashboard", "dashboard", "Render Grafana dashboards, or show one without Grafana."
        ),
        "demo": Command(
            f"{_CLI}.demo",
            "demo",
            "See streams freeze, then the same load with a concurrency cap.",
            ("cli", "lab"),
        ),
        "export": Command(
            f"{_CLI}.export", "export", "Export the streams of a journal as CSV, JSON Lines or Parquet."
        ),
        "probe": Command(
            f"{_CLI}.probe", "probe", "Stream a few answers from any server and report gaps and freezes."
        ),
        "proxy": Command(
            f"{_CLI}.proxy",
            "proxy",
            "Record the streams of clients in any language, in front of any server.",
            ("cli", "proxy"),
        ),
        "replay": Command(
            f"{_CLI}.replay", "replay", "Serve recorded streams with their original timing.", ("cli", "lab")
        ),
        "report": Command(
            f"{_CLI}.report", "report", "Report recorded streams: tables, or a page with plots."
        ),
        "rules": Command(
            f"{_CLI}.rules", "rules", "Render alert rules, or check which of them have data on a server."
        ),
        "serve": Command(
            f"{_CLI}.serve",
            "serve",
            "Run an emulated inference server: vLLM, SGLang, TGI and others.",
            ("cli", "lab"),
        ),
        "simulate": Command(
            f"{_CLI}.simulate",
            "simulate",
            "Simulate how an engine's admission rule affects streams.",
            ("cli", "lab"),
        ),
        "watch": Command(
            f"{_CLI}.watch", "watch", "Watch a server's own metrics, and match freezes with preemptions."
        ),
    }
)
"""Every command, in the order in which the overview shows them."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status: 0 done, 1 failed, 2 wrong usage, 130 interrupted.

    Without `argv` it is the program of this process: Ctrl-C is handled until the process has ended.
    """
    words = sys.argv[1:] if argv is None else argv
    before = handle(exit_at_once)
    try:
        with delivered_again():
            return _run(words)
    except KeyboardInterrupt:
        return INTERRUPTED
    finally:
        handle(SIG_IGN if argv is None else before)


def _run(words: Sequence[str]) -> int:
    """Run the command that is asked for, and turn what ends it into an exit status and at most one sentence."""
    _replace_unprintable()
    try:
        if list(words) == ["--version"]:  # answered without an extra
            sys.stdout.write(f"midstream {__version__}\n")
            status = 0
        else:
            from midstream.cli.common.app import run  # noqa: PLC0415 - it needs an extra, which may be missing

            status = run(COMMANDS, words)
        sys.stdout.flush()
    except BrokenPipeError:
        _discard_output()
        return 1
    except Exception as error:  # noqa: BLE001 - the last stop: whatever went wrong, no traceback reaches the user
        if caused_by_interrupt(error):
            return INTERRUPTED
        sentence, status = explain(error, _extras(words))
        if isinstance(error, ModuleNotFoundError) and set(words) <= {"-h", "--help"}:
            sys.stdout.write(_overview())
            status = 0
        if unwritable(error):
            _discard_output()
        sys.stderr.write(f"midstream: {printable(sentence)}\n")
    return status


def _extras(words: Sequence[str]) -> tuple[str, ...]:
    """Return the extras of the command that is asked for."""
    command = COMMANDS.get(next((word for word in words if not word.startswith("-")), ""))
    return () if command is None else command.extras


def _overview() -> str:
    """Return the list of commands for an installation that has none of the extras."""
    lines = (f"  {name:<9}  {command.help}" for name, command in COMMANDS.items())
    return "\n".join(["Usage: midstream [OPTIONS] COMMAND [ARGS]...", "", "Commands:", *lines, "\n"])


def _replace_unprintable() -> None:
    """Print a question mark for a character that the terminal's encoding lacks, and do not end the command."""
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="replace")


def _discard_output() -> None:
    """Discard what the interpreter flushes at exit: the reader of our output has closed it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
