"""`midstream advise`: limits, timeouts, how many answers may run at once, and the flag for it."""

from __future__ import annotations

import typer

from midstream.cli.advise.concurrency import concurrency
from midstream.cli.advise.flags import flags
from midstream.cli.advise.max_tokens import max_tokens
from midstream.cli.advise.timeout import timeout

_CLOSING = """
Exit status: 0 advice, 1 failed, 2 wrong usage, 3 not enough data for advice, 130 interrupted.
"""

advise = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    epilog=_CLOSING,
    help="""Choose limits from what was measured, and the flags that set them on your server.

    All four read the journal that `monitor(..., journal=...)` or MIDSTREAM_JOURNAL writes.
    `midstream demo --journal streams.db` makes one to try this on.

    \u0008
    The limit for answers:            midstream advise max-tokens --journal streams.db
    How many at once, by simulation:  midstream advise concurrency --journal streams.db --pool 3584
    When to end a silent stream:      midstream advise timeout --journal streams.db
    Flags, and whether they help:     midstream advise flags --journal streams.db --engine vllm --pool 3584
    """,
)
advise.command("max-tokens", short_help="Choose max_tokens from the lengths of answers.")(max_tokens)
advise.command("concurrency", short_help="Choose how many answers may run at once.")(concurrency)
advise.command("timeout", short_help="Choose the stall timeout from measured gaps.")(timeout)
advise.command("flags", short_help="Find the flags for your engine, and the reasons against them.")(flags)
