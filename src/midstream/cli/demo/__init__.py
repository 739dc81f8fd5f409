"""`midstream demo`: an overloaded server, its freezes as clients see them, the advice, and the same load again."""

from __future__ import annotations

import logging
import os
import shlex
import sys
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from openai import OpenAIError
from rich.console import Console

from midstream._support.interrupts import INTERRUPTED
from midstream.cli.common.errors import CliError
from midstream.cli.demo.crowd import ActLoad, Members, crowd
from midstream.cli.demo.live import latest, live
from midstream.cli.demo.report import (
    ActResult,
    show_advice,
    show_both,
    show_next,
    show_records,
    show_stall,
)
from midstream.cli.demo.stall import OTHERS, StallAct
from midstream.cli.demo.story import ANSWERS, ENGINE, HARDWARE, PROMPT_TOKENS, USERS, Act, first_act
from midstream.journal import JournalError, read
from midstream.lab.apart import serve_apart
from midstream.lab.emulation import emulator
from midstream.sources.scrape import ScrapeError, Scraper

MAX_SPEED = 10.0
"""Beyond this, what is seen is the jitter of the machine and not the engine's rule."""
WIDTH = 110
GAP_SHARE = 0.2
"""The goal of the printed advice, a gap that is not noticed: this part of what the demo counts as a freeze."""
RUN = "demo-"
"""What the attribute `run` of the demo's streams begins with; the number of the run follows."""


def demo(
    speed: Annotated[
        float, typer.Option(metavar="X", help="1 is the pace of a real server; at most 10.")
    ] = 1.0,
    *,
    journal: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Keep the streams for report, advise, compare and export.",
            show_default=False,
        ),
    ] = None,
) -> int | None:
    """See answers freeze, learn which limit to set, and see the same load with the limit. No key and no GPU needed.

    Sixteen clients in monitor(), each in a process of its own, request answers that together exceed the KV cache of a
    server. The server is emulated: vLLM's admission rule, at the pace of a recorded one. There is no error, and about
    ten answers stop in mid-sentence for seconds. The demo shows them live, then their records, the cap that follows
    from the lengths of all answers, the same load with that cap, and both side by side. In the end one more answer
    stops, its stall timeout ends the stream, and a second server continues it. It takes about 75 seconds.

    With --journal it ends with the commands that go on from there; each works on the streams of this run alone.

    \u0008
    midstream demo                         at the pace of a real server
    midstream demo --speed 2               twice as fast
    midstream demo --journal streams.db    keep the streams for report, advise, compare and export
    """
    if not 0 < speed <= MAX_SPEED:
        raise typer.BadParameter(f"{speed} is not above 0 and up to {MAX_SPEED:g}.", param_hint="--speed")
    _forget_settings()
    # The demo shows the freezes that midstream logs.
    logging.getLogger("midstream").addHandler(logging.NullHandler())
    kept = None if journal is None else _kept(journal)
    try:
        before, after = _play_both(first_act(speed), kept)
    except KeyboardInterrupt:
        sys.stderr.write(
            f"midstream: interrupted; the emulated server and its {USERS} clients are stopped, and nothing of "
            "them is left behind\n"
        )
        return INTERRUPTED
    if journal is not None and kept is not None:
        _print_next(journal, kept, before, after)
    return None


def _play_both(act: Act, kept: _Kept | None) -> tuple[ActResult, ActResult]:
    """Play both acts, and print what was seen in each."""
    watch = Console(stderr=True, highlight=False)
    out = Console(highlight=False, width=None if sys.stdout.isatty() else WIDTH)
    _introduce(watch, act)
    with crowd() as members:
        seen = _play(act, members, watch, kept)
        show_records(out, seen)
        show_advice(out, seen)
        sys.stdout.flush()
        after = act.capped(seen.caps.never)
        watch.print(f"[bold]The same load[/] with that cap: {after.lasts_s:.0f} s\n")
        again = _play(after, members, watch, kept)
        show_both(out, seen, again)
        sys.stdout.flush()
    _play_stall(StallAct(act.speed), watch, out)
    show_next(out)
    return seen, again


def _play_stall(act: StallAct, watch: Console, out: Console) -> None:
    """Play the last act, and print what was seen. Raises CliError if its servers cannot run."""
    lasts_s = act.without().stops_at_s + act.timeout_s + 3.0
    watch.print(
        f"\n[bold]A stall timeout[/]: a small server, busy with {OTHERS} long answers, and a second one that is idle: "
        f"{lasts_s:.0f} s\n",
        soft_wrap=True,
    )
    try:
        result = act.play(_print_line)
    except (ChildProcessError, OpenAIError) as error:
        raise CliError(f"a server of the demo failed ({error}); run it again") from error
    show_stall(out, act, result)
    sys.stdout.flush()


@dataclass(frozen=True, slots=True)
class _Kept:
    """Where the streams of a run go, and the value of their attribute `run`."""

    path: Path
    run: str


def _kept(journal: Path) -> _Kept:
    """Return where the streams go, and a name for this run. Raises CliError if they could not be written."""
    path = journal.expanduser().absolute()
    if not path.parent.is_dir():
        raise CliError(f"there is no folder {path.parent} for {journal}; make it, or name another file")
    try:
        earlier = read(path).records if path.exists() else []
    except JournalError as error:
        raise CliError(str(error)) from error
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise CliError(f"{journal} cannot be written: Permission denied; name another file")
    runs = {record.attributes.get("run", "") for record in earlier}
    numbers = [int(run.removeprefix(RUN)) for run in runs if run.removeprefix(RUN).isdigit()]
    return _Kept(path, f"{RUN}{max(numbers, default=0) + 1}")


def _print_next(journal: Path, kept: _Kept, before: ActResult, after: ActResult) -> None:
    """Print the commands that go on from here. Raises CliError if the streams are not in the journal."""
    try:
        records = [each for each in read(kept.path).records if each.attributes.get("run") == kept.run]
    except JournalError as error:
        raise CliError(str(error)) from error
    began = min(record.started_at for record in after.load.records)
    at = datetime.fromtimestamp(began, timezone.utc).astimezone().isoformat(timespec="milliseconds")
    file = shlex.quote(str(journal))
    goal_ms = 1000 * GAP_SHARE * before.load.act.freeze_after_s
    chosen = f"--journal {file} --where run={kept.run}"
    server = f"--engine {ENGINE} --hardware {HARDWARE.name} --pool {before.pool_tokens}"
    sys.stderr.write(
        f"midstream: {len(records)} streams of this run are in {file}. Each of these works on them:\n\n"
        f"    midstream report {chosen}\n"
        f"    midstream advise max-tokens {chosen} --cut 10%\n"
        f"    midstream advise concurrency {chosen} {server} --goal p99-gap={goal_ms:.0f}ms\n"
        f"    midstream compare {chosen} --at {at}\n"
    )


def _forget_settings() -> None:
    """Remove settings of this machine from the environment: midstream off, metrics sent elsewhere, a proxy."""
    for name in list(os.environ):
        if name.startswith(("MIDSTREAM_", "OTEL_")) or name.upper().endswith("_PROXY"):
            del os.environ[name]


def _introduce(console: Console, act: Act) -> None:
    needed = USERS * (PROMPT_TOKENS + sum(ANSWERS) / len(ANSWERS))
    pace = (
        "at the pace of a recorded one"
        if act.speed == 1
        else f"{act.speed:g} times as fast as a recorded one"
    )
    pool = act.flags["num_gpu_blocks"] * act.flags["block_size"]
    console.print(
        f"[bold]A vLLM with a small KV cache[/], emulated {pace}: {act.lasts_s:.0f} s\n"
        f"{USERS} users at once need {needed:,.0f} tokens of KV cache, and the server has {pool:,}.\n"
        f"Each is an OpenAI client in monitor(), a process of its own, and requests {len(ANSWERS) // USERS} answers.\n"
        f"A gap of {act.freeze_after_s:g} s is a freeze here; the default of monitor() is 5 s.\n",
        soft_wrap=True,
    )


def _play(act: Act, members: Members, console: Console, kept: _Kept | None) -> ActResult:
    """Run the load and show it on standard error: live on a terminal, otherwise a line for each event."""
    watched = sys.stderr.isatty() and not console.is_dumb_terminal
    news = latest()
    report = news.append if watched else _print_line
    load = ActLoad(act, report) if kept is None else ActLoad(act, report, kept.path, kept.run)
    try:
        with serve_apart(partial(emulator, act.emulated)) as base_url:
            with live(load, news) if watched else nullcontext():
                load.run(members, base_url)
            with Scraper(base_url) as scraper:
                view = scraper.read().view
    except (ChildProcessError, ScrapeError) as error:
        raise CliError(f"the demo's own server failed ({error}); run it again") from error
    if view.pool_tokens.value is None:
        raise CliError(
            f"the demo's own server does not report the size of its KV cache: {view.pool_tokens.why}"
        )
    return ActResult(load, view.preemptions, round(view.pool_tokens.value))


def _print_line(line: str) -> None:
    sys.stderr.write(f"{line}\n")
