"""`midstream demo`: eight answers of an overloaded server, four of which freeze, as their clients see it."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Annotated

import typer
from openai import OpenAIError
from rich.console import Console

from midstream import Outcome, setup
from midstream.cli._demo_live import latest, live
from midstream.cli._demo_load import Load, Plan, scrape
from midstream.cli._demo_report import show
from midstream.cli._errors import CliError
from midstream.lab.apart import serve_apart
from midstream.lab.library import PACKAGED, read_recordings
from midstream.lab.observed import read_load
from midstream.lab.replay import replayer

FILE = PACKAGED / "over8.jsonl"
POOL_TOKENS = 28 * 128
"""What the KV pool of the recorded server held: README.md beside the recordings."""
FREEZE_AFTER_S = 2.0
"""Below the default of `monitor()`, so that all four freezes are seen."""
MAX_SPEED = 20.0
"""Beyond this, what is seen is the jitter of the machine and not what was recorded."""
WIDTH = 110


def demo(
    speed: Annotated[float, typer.Option(help="1 is as recorded, 20 is the most.")] = 1.0,
    freeze_after: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="Silence from which a stream counts as frozen. Without it: 2, divided by the speed.",
            show_default=False,
        ),
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of /metrics; 0 takes a free one.")] = 0,
    keep: Annotated[bool, typer.Option("--keep", help="Keep /metrics up at the end, until Ctrl-C.")] = False,
) -> None:
    """Watch a real server's overload through monitored clients, replayed on this machine.

    Eight users ask at once for answers that together exceed the server's KV cache. Nobody gets an error, and
    four answers stop in mid-sentence for seconds. You see each stream while it runs, then the record of each,
    the metrics as Prometheus gets them, and what to do next. It takes 22 seconds; no key, no network, no GPU.

    \u0008
    midstream demo                      as it happened
    midstream demo --speed 4            in a hurry
    midstream demo --freeze-after 5     with the default threshold of monitor()
    midstream demo --port 9464 --keep   for your own Prometheus, at http://127.0.0.1:9464/metrics
    """
    if not 0 < speed <= MAX_SPEED:
        raise typer.BadParameter(f"{speed} is not above 0 and up to {MAX_SPEED:g}.", param_hint="--speed")
    after = FREEZE_AFTER_S / speed if freeze_after is None else freeze_after
    if not (math.isfinite(after) and after > 0):
        raise typer.BadParameter(f"{after} is not a positive number of seconds.", param_hint="--freeze-after")
    _forget_settings()
    plan = Plan(read_load(FILE), speed, after)
    serving = partial(replayer, read_recordings([FILE]), speed=speed)
    with _metrics(port) as metrics_url:
        with serve_apart(serving) as base_url:
            load = _run(plan, base_url, metrics_url)
        out = Console(highlight=False, width=None if sys.stdout.isatty() else WIDTH)
        show(out, load, scrape(metrics_url))
        if keep:
            sys.stdout.flush()
            sys.stderr.write(f"Ctrl-C ends it; until then: curl {metrics_url}\n")
            while True:
                time.sleep(3600)


def _forget_settings() -> None:
    """Show midstream as it comes: a machine may have it switched off, or its metrics sent elsewhere."""
    for name in [name for name in os.environ if name.startswith(("MIDSTREAM_", "OTEL_"))]:
        del os.environ[name]


@contextmanager
def _metrics(port: int) -> Iterator[str]:
    """Serve the metrics of this process on loopback, and give their address."""
    try:
        handle = setup(otlp=False, prometheus=port, host="127.0.0.1")
    except OSError as error:
        raise CliError(
            f"/metrics cannot be served on port {port}: {os.strerror(error.errno or 0)}; "
            "choose another, or leave --port out to get a free one"
        ) from error
    except (ImportError, RuntimeError) as error:
        # An extra is missing, or whatever started this process has given it a meter provider.
        raise CliError(str(error)) from error
    with handle:
        yield handle.prometheus_url or ""


def _run(plan: Plan, base_url: str, metrics_url: str) -> Load:
    """Run the load and show it on standard error: live on a terminal, otherwise a line for each event."""
    console = Console(stderr=True, highlight=False)
    watched = sys.stderr.isatty() and not console.is_dumb_terminal
    news = latest()
    _introduce(console, plan, metrics_url)
    load = Load(plan, base_url, metrics_url, news.append if watched else _say)
    # What midstream logs of a freeze is shown already.
    logging.getLogger("midstream").addHandler(logging.NullHandler())
    try:
        with live(load, news) if watched else nullcontext():
            asyncio.run(load.run())
    except OpenAIError as error:
        raise CliError(f"the demo's own server failed in the middle ({error}); run it again") from error
    if not all(user.record and user.record.outcome == Outcome.COMPLETED for user in load.users):
        raise CliError("the demo's own server failed in the middle; run it again")
    return load


def _introduce(console: Console, plan: Plan, metrics_url: str) -> None:
    users = plan.load.streams
    needed = sum(user.prompt_tokens + user.answer_tokens for user in users)
    pace = "at true speed" if plan.speed == 1 else f"{plan.speed:g} times as fast"
    console.print(
        f"[bold]A real server's overload[/], recorded from vLLM 0.32, replayed {pace}: {plan.lasts_s:.0f} s\n"
        f"{len(users)} users at once need {needed:,} tokens of KV cache, and the server has {POOL_TOKENS:,}.\n"
        "Arrival times are real, the words are placeholders. Each user is an AsyncOpenAI\n"
        f"client in monitor(); a silence of {plan.freeze_after_s:g} s is a freeze (5 s, if nothing is said).\n"
        f"The metrics, meanwhile: [bold cyan]curl {metrics_url}[/]\n",
        soft_wrap=True,
    )


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
