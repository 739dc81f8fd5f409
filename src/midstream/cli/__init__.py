"""The command line: finds the command that was asked for, and turns every error into one sentence.

To add a command, write it in a file of its own (parse, call, print) and name it in COMMANDS. A command raises
CliError for what the user can act on, and returns None or an exit status.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from midstream.cli.common.errors import explain, unwritable

__all__ = ["COMMANDS", "Command", "main"]


@dataclass(frozen=True, slots=True)
class Command:
    """Where a command lives, and its line in the overview. It is imported only when it is asked for."""

    module: str
    function: str
    help: str


COMMANDS: Mapping[str, Command] = MappingProxyType(
    {
        "advise": Command(
            "midstream.cli.advise", "advise", "Choose limits from what was measured, and the flags for them."
        ),
        "compare": Command(
            "midstream.cli.compare", "compare", "Tell whether a change did good, from before it and after."
        ),
        "dashboard": Command(
            "midstream.cli.dashboard",
            "dashboard",
            "Render Grafana dashboards, or show one without a Grafana.",
        ),
        "demo": Command(
            "midstream.cli.demo", "demo", "Watch streams freeze, learn the limit, and watch it work."
        ),
        "export": Command(
            "midstream.cli.export", "export", "Export the streams of a journal: CSV, JSON Lines, Parquet."
        ),
        "probe": Command(
            "midstream.cli.probe", "probe", "Stream a few answers from any real server and say what was seen."
        ),
        "replay": Command("midstream.cli.replay", "replay", "Serve recorded streams with their true timing."),
        "report": Command(
            "midstream.cli.report",
            "report",
            "Show what recorded streams were like: tables, or a page with plots.",
        ),
        "rules": Command("midstream.cli.rules", "rules", "Render alert rules, and check them on a server."),
        "serve": Command(
            "midstream.cli.serve", "serve", "Serve an emulated engine: its rule, its dialect, its metrics."
        ),
        "simulate": Command(
            "midstream.cli.simulate", "simulate", "See what an admission rule does to streams."
        ),
        "watch": Command(
            "midstream.cli.watch", "watch", "Watch a server by its own metrics, and match freezes."
        ),
    }
)
"""Every command, in the order in which the overview shows them."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status: 0 done, 1 failed, 2 wrong usage, 130 interrupted."""
    _print_whatever_there_is()
    try:
        from midstream.cli.common.app import run  # noqa: PLC0415 - its imports may be missing, which is explained below

        status = run(COMMANDS, sys.argv[1:] if argv is None else argv)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        _discard_output()
        return 1
    except Exception as error:  # noqa: BLE001 - the last stop: whatever went wrong, no traceback reaches the user
        sentence, status = explain(error)
        if unwritable(error):
            _discard_output()
        sys.stderr.write(f"midstream: {sentence}\n")
    return status


def _print_whatever_there_is() -> None:
    """Let a name that the terminal's encoding lacks be printed with question marks, and not end the command."""
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="replace")


def _discard_output() -> None:
    """Let the interpreter's own flush at exit go nowhere: whoever read our output has left."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
