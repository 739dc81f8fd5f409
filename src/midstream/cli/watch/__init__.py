"""`midstream watch`: a server's own metrics over time, and freezes matched with its preemptions."""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.live import Live

from midstream._support.interrupts import INTERRUPTED
from midstream.cli.common.errors import CliError
from midstream.cli.common.http_options import SERVER_TOKEN, HeaderOption, headers_of
from midstream.cli.common.journal_options import JournalOption, WhereOption
from midstream.cli.common.option_groups import with_option_groups
from midstream.cli.watch.json_lines import document
from midstream.cli.watch.lines import Lines
from midstream.cli.watch.run import Event, Read, Run
from midstream.sources.scrape import Scraper
from midstream.sources.select import JOURNAL, SelectionError, condition, journal_path
from midstream.sources.server import ENGINES
from midstream.sources.tail import Tail


@dataclass(frozen=True, slots=True)
class WatchedServerOptions:
    """Which server, and how it is read."""

    server: Annotated[
        str,
        typer.Option(metavar="URL", help="Address of the server; /metrics, /v1 and http:// may be left out."),
    ]
    engine: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help=f"Needed only where /metrics does not show it: {', '.join(ENGINES)}.",
            show_default=False,
        ),
    ] = None
    header: HeaderOption = None
    timeout: Annotated[
        float, typer.Option(metavar="SECONDS", help="Time that the server has for an answer.")
    ] = 5.0


@dataclass(frozen=True, slots=True)
class DurationOptions:
    """How often the server is read, and for how long."""

    interval: Annotated[float, typer.Option(metavar="SECONDS", help="Time between two readings.")] = 2.0
    for_: Annotated[
        float | None,
        typer.Option("--for", metavar="SECONDS", help="End after this time.", show_default=False),
    ] = None
    once: Annotated[bool, typer.Option("--once", help="Read once, print it and exit.")] = False


@with_option_groups
def watch(
    *,
    server: WatchedServerOptions,
    journal: JournalOption = None,
    where: WhereOption = None,
    duration: DurationOptions,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a JSON document for each reading and each freeze.")
    ] = False,
) -> int | None:
    """Watch a server's /metrics: requests that run and wait, KV cache in use, and preemptions.

    vLLM, SGLang, TGI, TensorRT-LLM and llama.cpp are supported. A number that cannot be read is `?`, with the reason
    below, and never 0. With a journal, each freeze is shown with the preemptions at its time; a journal that is not
    there yet is waited for.

    A key for the server is read from MIDSTREAM_SERVER_TOKEN. Exit status: 1 if the first reading fails; later
    ones are shown as unknown until the server is back.

    `midstream serve --port 8000` runs a server to try it on.

    \u0008
    midstream watch --server localhost:8000                        every 2 s, until Ctrl-C
    midstream watch --server localhost:8000 --journal streams.db   with the freezes of its clients
    midstream watch --server localhost:8000 --once --json          one reading, for a script
    """
    every = _seconds(duration.interval, "--interval")
    seconds = None if duration.for_ is None else _seconds(duration.for_, "--for")
    console = Console(highlight=False, markup=False, emoji=False)
    lively = console.is_terminal and not console.is_dumb_terminal and not (as_json or duration.once)
    with _scraper(server) as scraper:
        run = Run(scraper, None if duration.once else _tail(journal, where))
        if as_json:
            run.say = partial(_say_json, url=scraper.url)
        elif not lively:
            lines = Lines(scraper.url)
            run.say, run.say_freezes = lines, lines.freezes
        _warn_of_engine(server.engine, run.first())
        if duration.once:
            return None
        interrupted = False
        try:
            with _live(run, console) if lively else nullcontext():
                _keep_on(run, every, seconds)
        except KeyboardInterrupt:
            interrupted = True
        if lively:
            console.print(run.shown.frame())
        for sentence in run.finish():
            (sys.stderr if as_json else sys.stdout).write(f"{sentence}\n")
        return INTERRUPTED if interrupted else None


def _scraper(options: WatchedServerOptions) -> Scraper:
    """Return what reads the server. Raises BadParameter or CliError."""
    if options.engine is not None and options.engine not in ENGINES:
        raise typer.BadParameter(
            f"{options.engine} is not one of {', '.join(ENGINES)}.", param_hint="--engine"
        )
    try:
        return Scraper(
            options.server,
            engine=options.engine,
            headers=headers_of(options.header, SERVER_TOKEN),
            timeout_s=_seconds(options.timeout, "--timeout"),
        )
    except ValueError as error:
        raise typer.BadParameter(f"{error}.", param_hint="--server") from error


def _warn_of_engine(asked: str | None, read: Read) -> None:
    """Print a note if the server's page shows another engine than the one in --engine, which then has no effect."""
    found = read.scraped.view.engine
    if asked is not None and found != asked:
        sys.stderr.write(
            f"midstream: --engine {asked} has no effect: the server's page shows the engine, which is {found}\n"
        )


def _keep_on(run: Run, every: float, seconds: float | None) -> None:
    """Take a step at a time, `every` so many seconds, for so long or until Ctrl-C."""
    due = begun = time.monotonic()
    while seconds is None or due + every <= begun + seconds:
        # Steps that were missed, because the server took its time, are not made up for.
        due = max(due + every, time.monotonic())
        time.sleep(max(0.0, due - time.monotonic()))
        run.step()


def _live(run: Run, console: Console) -> Live:
    return Live(console=console, get_renderable=run.shown.frame, refresh_per_second=4, transient=True)


def _say_json(event: Event, url: str) -> None:
    sys.stdout.write(f"{json.dumps(document(event, url))}\n")
    sys.stdout.flush()


def _tail(journal: Path | None, where: Sequence[str] | None) -> Tail | None:
    """Return what reads the journal, None if none is named."""
    if journal is None and not os.environ.get(JOURNAL, "").strip():
        if where:
            raise typer.BadParameter(
                "it chooses streams of a journal, and none is named.", param_hint="--where"
            )
        return None
    try:
        path = journal_path(journal)
        tail = Tail(path, [condition(text) for text in where or ()])
    except SelectionError as error:
        raise typer.BadParameter(f"{error}.", param_hint="--where") from error
    except ValueError as error:
        raise CliError(str(error)) from error
    if tail.waiting:
        sys.stderr.write(f"midstream: no journal yet at {path}; waiting for it\n")
    return tail


def _seconds(value: float, option: str) -> float:
    if not (math.isfinite(value) and value > 0):
        raise typer.BadParameter(f"{value:g} is not a positive number of seconds.", param_hint=option)
    return value
