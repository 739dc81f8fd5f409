"""Reads what the `midstream advise` commands were asked for: shares, times, files."""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Annotated, TypeAlias

import typer
from rich.console import Console
from rich.progress import Progress

from midstream.cli.common.errors import CliError, unread

NOT_ENOUGH = 3
"""The exit status of a command whose data are too few for an answer."""

MOST_BYTES = 256 * 2**20
"""More than any page, configuration or start-up log has, and few enough to hold."""

JsonOption: TypeAlias = Annotated[
    bool, typer.Option("--json", help="Print one JSON document instead of tables.")
]


def parse_share(text: str, option: str, *, zero: bool = False) -> float:
    """Read a share: 0.1%, 0.1 %, or 0.001; 0 only with `zero`."""
    matched = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*(%?)\s*", text)
    share = float(matched[1]) / (100 if matched[2] else 1) if matched else math.nan
    if not (0 < share < 1 or (zero and share == 0)):
        raise typer.BadParameter(f"{text!r} is no share; write it as in 0.1% or 0.001.", param_hint=option)
    return share


def parse_seconds(text: str, option: str) -> float:
    """Read a time: 2s, 500ms, or a number of seconds."""
    matched = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*(ms|s|)\s*", text)
    seconds = float(matched[1]) / (1000 if matched[2] == "ms" else 1) if matched else math.nan
    if not math.isfinite(seconds):
        raise typer.BadParameter(f"{text!r} is no time; write it as in 2s or 500ms.", param_hint=option)
    return seconds


def read_text(path: Path) -> str:
    """Read a file of text. Raises CliError if it cannot be had."""
    try:
        with path.open("rb") as file:
            read = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise unread(path, error) from error
    if len(read) > MOST_BYTES:
        raise CliError(
            f"{path} is larger than {MOST_BYTES >> 20} MiB; give the part from the server's start on"
        )
    return read.decode("utf-8", errors="replace")


def print_json(document: object) -> None:
    """Print one JSON document to standard output."""
    json.dump(document, sys.stdout, indent=2)
    sys.stdout.write("\n")


class ShownProgress:
    """A progress bar for the runs of a simulation; removed at the end."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._shown = Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty())

    def __enter__(self) -> Callable[[int, int], None]:
        self._shown.__enter__()
        task = self._shown.add_task(self._title, total=None)
        return lambda done, expected: self._shown.update(task, completed=done, total=expected)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._shown.__exit__(kind, error, trace)
