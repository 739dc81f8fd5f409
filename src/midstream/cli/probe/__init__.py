"""`midstream probe`: streams a few answers from a real server and reports what was measured."""

from __future__ import annotations

import asyncio
import json
import math
import os
import sys
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from typing import Annotated

import typer
from rich.console import Console

from midstream._support.interrupts import INTERRUPTED
from midstream.cli.common.errors import CliError
from midstream.cli.common.option_groups import with_option_groups
from midstream.cli.common.plain_help import choices
from midstream.cli.probe.progress import live
from midstream.cli.probe.table import show
from midstream.probe import Api, Plan, Probe, ProbeError, Seen, base_urls, find_server, totals_of, verdict
from midstream.probe.plan import PROMPT

KEY = "OPENAI_API_KEY"


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """What is requested, and how often."""

    model: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Model to request. [the server's first]", show_default=False),
    ] = None
    count: Annotated[
        int, typer.Option("--count", "-n", metavar="N", min=1, help="Number of answers to stream.")
    ] = 4
    concurrency: Annotated[int, typer.Option(metavar="N", min=1, help="How many of them at a time.")] = 4
    prompt: Annotated[
        str,
        typer.Option(metavar="TEXT", help="Prompt of each request. [for a long story]", show_default=False),
    ] = PROMPT
    max_tokens: Annotated[int, typer.Option(metavar="N", min=1, help="Token limit of each request.")] = 256
    api: Annotated[Api, typer.Option(metavar=choices(Api), help="API to use.")] = Api.CHAT


@dataclass(frozen=True, slots=True)
class LimitOptions:
    """What counts as a freeze, and when a stream is given up."""

    freeze_after: Annotated[
        float, typer.Option(metavar="SECONDS", help="A gap of at least this length is a freeze.")
    ] = 5.0
    timeout: Annotated[
        float, typer.Option(metavar="SECONDS", help="Give a stream up after this time without output.")
    ] = 120.0


@with_option_groups
def probe(
    url: Annotated[
        str, typer.Argument(metavar="URL", help="Address of the server; /v1 and http:// may be left out.")
    ],
    *,
    load: LoadOptions,
    limits: LimitOptions,
    fail_on_freeze: Annotated[
        bool, typer.Option("--fail-on-freeze", help="Exit with 1 if a stream froze.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document instead of a table.")
    ] = False,
) -> int:
    """Stream a few answers from any OpenAI-compatible server, and report gaps, freezes and failures.

    The key is read from OPENAI_API_KEY. A gap is the time between two pieces of one answer; the time to the first
    piece is shown apart. Exit status: 0 if every answer was complete, 1 if not.

    `midstream serve --port 8000` runs a server to try it on.

    \u0008
    midstream probe localhost:8000                   four answers, all at once
    midstream probe localhost:8000 -n 16 --json      sixteen, for a script
    """
    plan = _plan(url, load, limits)
    try:
        probed = Probe(plan, asyncio.run(find_server(plan)))
    except ProbeError as error:
        raise CliError(str(error)) from error
    interrupted = _run(probed, watched=sys.stdout.isatty() and sys.stderr.isatty() and not as_json)
    seen = probed.seen()
    sentence = None if interrupted else _nothing_began(seen)
    if sentence is not None:
        raise CliError(sentence)
    if as_json:
        json.dump(_document(probed, seen, interrupted=interrupted), sys.stdout, indent=2)
        sys.stdout.write("\n")
    else:
        # A server's words are never markup, and a table in a pipe is not cut to a terminal's width.
        width = None if sys.stdout.isatty() else 200
        console = Console(highlight=False, markup=False, emoji=False, width=width)
        show(console, probed, seen, interrupted=interrupted)
    if interrupted:
        return INTERRUPTED
    froze = fail_on_freeze and any(each.record is not None and each.record.freezes for each in seen)
    return 0 if all(each.completed for each in seen) and not froze else 1


def _plan(url: str, load: LoadOptions, limits: LimitOptions) -> Plan:
    """Return what the options ask for. Raises BadParameter or CliError."""
    return Plan(
        base_urls=_base_urls(url),
        key=_key(),
        model=load.model or None,
        count=load.count,
        concurrency=load.concurrency,
        prompt=load.prompt,
        max_tokens=load.max_tokens,
        api=load.api,
        freeze_after_s=_seconds(limits.freeze_after, "--freeze-after"),
        timeout_s=_seconds(limits.timeout, "--timeout"),
    )


def _run(probed: Probe, *, watched: bool) -> bool:
    """Stream the answers; return whether Ctrl-C ended that."""
    try:
        with live(probed) if watched else nullcontext():
            asyncio.run(probed.run())
    except KeyboardInterrupt:
        return True
    return False


def _base_urls(url: str) -> tuple[str, ...]:
    try:
        return base_urls(url)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="URL") from error


def _key() -> str | None:
    key = os.environ.get(KEY, "").strip()
    if not (key.isascii() and key.isprintable()):
        raise CliError(f"{KEY} holds characters that a key cannot have; set it again")
    return key or None


def _seconds(value: float, option: str) -> float:
    if not (math.isfinite(value) and value > 0):
        raise typer.BadParameter(f"{value} is not a positive number of seconds.", param_hint=option)
    return value


def _nothing_began(seen: tuple[Seen, ...]) -> str | None:
    """Return what kept every stream from sending anything, if it is one and the same thing."""
    problems = {each.problem for each in seen}
    if len(problems) == 1 and all(each.record is None or not each.record.chunks for each in seen):
        return problems.pop()
    return None


def _document(probed: Probe, seen: tuple[Seen, ...], *, interrupted: bool) -> dict[str, object]:
    totals = totals_of(seen, probed.elapsed_s)
    return {
        "url": probed.url,
        "api": probed.plan.api.value,
        "model": probed.server.model,
        "count": probed.plan.count,
        "concurrency": probed.plan.concurrency,
        "freeze_after_s": probed.plan.freeze_after_s,
        "interrupted": interrupted,
        "notes": list(probed.ask.notes),
        "records": [
            {"stream": each.stream, **asdict(each.record)} for each in seen if each.record is not None
        ],
        "failures": [
            {"stream": each.stream, "problem": each.problem} for each in seen if each.problem is not None
        ],
        "totals": asdict(totals),
        "verdict": verdict(totals, probed.plan.at_a_time, interrupted=interrupted),
    }
