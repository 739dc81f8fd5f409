"""`midstream demo`: an overloaded server, its freezes as clients see them, the advice, and the same load again."""

from __future__ import annotations

import logging
import os
import shlex
import sys
from contextlib import nullcontext
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from midstream.cli.common.errors import CliError
from midstream.cli.demo.crowd import Load, Members, crowd
from midstream.cli.demo.live import latest, live
from midstream.cli.demo.report import ActResult, show_advice, show_both, show_records
from midstream.cli.demo.story import ANSWERS, FREEZE_AFTER_S, PROMPT_TOKENS, Act, first_act
from midstream.journal import JournalError, read
from midstream.lab.apart import serve_apart
from midstream.lab.emulation import emulator
from midstream.sources.scrape import ScrapeError, Scraper

MAX_SPEED = 10.0
"""Beyond this, what is seen is the jitter of the machine and not the engine's rule."""
WIDTH = 110


def demo(
    speed: Annotated[
        float, typer.Option(metavar="X", help="1 is a real server's pace, 10 is the most.")
    ] = 1.0,
    *,
    journal: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Keep the streams, for report, compare, advise and export.",
            show_default=False,
        ),
    ] = None,
) -> int | None:
    """Watch answers freeze, learn which limit to set, and watch the same load with the limit. No key, no GPU.

    Eight clients in monitor(), each in a process of its own, ask at once for answers that together exceed the KV
    cache of a server. The server is emulated: vLLM's admission rule, at the pace of a real one that was recorded.
    Nobody gets an error, and three or four answers stop in mid-sentence for seconds. You see it live, then the record
    of each stream, the cap that follows from their lengths, the same load with that cap in force, and both side by
    side. It takes about 55 seconds.

    \u0008
    midstream demo                         at a real server's pace
    midstream demo --speed 4               in a hurry
    midstream demo --journal streams.db    and keep what was recorded, to try the other commands on
    """
    if not 0 < speed <= MAX_SPEED:
        raise typer.BadParameter(f"{speed} is not above 0 and up to {MAX_SPEED:g}.", param_hint="--speed")
    _forget_settings()
    # What midstream logs of a freeze is shown already.
    logging.getLogger("midstream").addHandler(logging.NullHandler())
    watch = Console(stderr=True, highlight=False)
    out = Console(highlight=False, width=None if sys.stdout.isatty() else WIDTH)
    before = first_act(speed)
    kept = None if journal is None else _kept(journal)
    _introduce(watch, before)
    try:
        with crowd() as members:
            seen = _play(before, members, watch, kept)
            show_records(out, seen)
            show_advice(out, seen)
            sys.stdout.flush()
            after = before.capped(seen.caps.never)
            watch.print(f"[bold]The same load[/], with that cap in force: {after.lasts_s:.0f} s\n")
            again = _play(after, members, watch, kept)
            show_both(out, seen, again)
    except KeyboardInterrupt:
        sys.stderr.write(
            f"midstream: interrupted; the emulated server and its {len(ANSWERS)} clients are stopped, and nothing of "
            "them is left behind\n"
        )
        return 130
    if journal is not None:
        _say_kept(journal, again)
    return None


def _kept(journal: Path) -> Path:
    """Return where the streams go, from wherever a process looks. Raises CliError if they could not be written."""
    path = journal.expanduser().absolute()
    if not path.parent.is_dir():
        raise CliError(f"there is no folder {path.parent} for {journal}; make it, or name another file")
    try:
        if path.exists():
            read(path)
    except JournalError as error:
        raise CliError(str(error)) from error
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise CliError(f"{journal} cannot be written: Permission denied; name another file")
    return path


def _say_kept(journal: Path, after: ActResult) -> None:
    """Say what is in the journal now, and what can be done with it. Raises CliError if it is not there."""
    began = min(record.started_at for record in after.load.records)
    try:
        records = read(journal.expanduser()).records
    except JournalError as error:
        raise CliError(str(error)) from error
    at = datetime.fromtimestamp(began, timezone.utc).astimezone().isoformat(timespec="milliseconds")
    file = shlex.quote(str(journal))
    sys.stderr.write(
        f"midstream: {file} holds {len(records)} streams now; look at them with midstream report --journal {file}, "
        f"and at what the cap did with midstream compare --journal {file} --at {at}\n"
    )


def _forget_settings() -> None:
    """Show midstream as it comes: a machine may have it switched off, its metrics sent elsewhere, or a proxy."""
    for name in list(os.environ):
        if name.startswith(("MIDSTREAM_", "OTEL_")) or name.upper().endswith("_PROXY"):
            del os.environ[name]


def _introduce(console: Console, act: Act) -> None:
    users = len(ANSWERS)
    needed = sum(ANSWERS) + PROMPT_TOKENS * users
    pace = (
        "at the pace of a recorded one"
        if act.speed == 1
        else f"{act.speed:g} times as fast as a recorded one"
    )
    pool = act.flags["num_gpu_blocks"] * act.flags["block_size"]
    console.print(
        f"[bold]A vLLM with a small KV cache[/], emulated {pace}: {act.lasts_s:.0f} s\n"
        f"{users} users at once need {needed:,} tokens of KV cache, and the server has {pool:,}.\n"
        f"Each is an OpenAI client in monitor() and a process of its own; a silence of {act.freeze_after_s:g} s\n"
        f"is a freeze ({FREEZE_AFTER_S:g} s of the server's time; 5 s, if nothing is said).\n",
        soft_wrap=True,
    )


def _play(act: Act, members: Members, console: Console, journal: Path | None) -> ActResult:
    """Run the load and show it on standard error: live on a terminal, otherwise a line for each event."""
    watched = sys.stderr.isatty() and not console.is_dumb_terminal
    news = latest()
    load = Load(act, news.append if watched else _say, journal)
    try:
        with serve_apart(partial(emulator, act.emulated)) as base_url:
            with live(load, news) if watched else nullcontext():
                load.run(members, base_url)
            with Scraper(base_url) as scraper:
                view = scraper.read().view
    except (ChildProcessError, ScrapeError) as error:
        raise CliError(f"the demo's own server failed ({error}); run it again") from error
    if view.pool_tokens.value is None:
        raise CliError(f"the demo's own server does not say how much its cache holds: {view.pool_tokens.why}")
    return ActResult(load, view.evictions, round(view.pool_tokens.value))


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
