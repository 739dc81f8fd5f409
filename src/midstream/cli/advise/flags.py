"""`midstream advise flags`: the flags that set a cap or a limit on an engine, and when that is the wrong tool."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Annotated

import typer

from midstream.advice.engines import FLAGS
from midstream.advice.flags import advise_flags
from midstream.advice.pool import PoolError
from midstream.cli.advise.flags_show import document, show
from midstream.cli.advise.options import NOT_ENOUGH, JsonOption, ShownProgress, parse_share, print_json
from midstream.cli.advise.pool import PoolOptions
from midstream.cli.common.errors import CliError
from midstream.cli.common.journal_options import StreamOptions
from midstream.cli.common.option_groups import with_option_groups
from midstream.engines.flags import Version, version_of
from midstream.report.terminal import console
from midstream.sources.select import JOURNAL
from midstream.stream.model import StreamRecord


@dataclass(frozen=True, slots=True)
class WantedOptions:
    """The option group of what is to be set, on which engine."""

    engine: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help=f"One of {', '.join(FLAGS)}. Without it: the server's.",
            show_default=False,
        ),
    ] = None
    engine_version: Annotated[
        str | None,
        typer.Option(
            metavar="VERSION", help="As in 0.31.0; without it, the flags of all.", show_default=False
        ),
    ] = None
    cap: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="How many may run at once. Without it: as `advise concurrency` finds it.",
            show_default=False,
        ),
    ] = None
    max_tokens: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="The limit that requests shall ask for.", show_default=False),
    ] = None
    freeze_share: Annotated[
        str, typer.Option(metavar="SHARE", help="The share of answers that may freeze, for the cap.")
    ] = "1%"
    preemptions_per_minute: Annotated[
        float | None,
        typer.Option(
            metavar="X", min=0, help="Preemptions, if known better than by the server.", show_default=False
        ),
    ] = None

    def version(self) -> Version | None:
        """Return the engine's version. Raises BadParameter for one that is none, and for an unknown engine."""
        if self.engine is not None and self.engine not in FLAGS:
            raise typer.BadParameter(
                f"{self.engine} is not one of {', '.join(FLAGS)}.", param_hint="--engine"
            )
        try:
            return None if self.engine_version is None else version_of(self.engine_version)
        except ValueError as error:
            raise typer.BadParameter(f"{error}.", param_hint="--engine-version") from error


@with_option_groups
def flags(
    *, wanted: WantedOptions, streams: StreamOptions, size: PoolOptions, as_json: JsonOption = False
) -> int:
    """Set a cap or a limit on your engine: the flag, its value, its version, and what to beware of.

    The cap is the one that `midstream advise concurrency` finds. The journal and the server's metrics also show when
    tuning admission is the wrong tool: nothing froze, the cache never fills, nothing was preempted, the whole server
    stood still, no reader gave up, or the server is out of capacity. Exit status: 0 advice, 1 failed, 2 wrong usage,
    3 not enough data for any value.

    \u0008
    A cap that you have already, for a version:
      midstream advise flags --engine vllm --engine-version 0.31 --cap 12

    \u0008
    From the journal and the server itself, here those of the demo and of `midstream serve --port 8000`:
      midstream demo --journal streams.db
      midstream advise flags --server localhost:8000 --journal streams.db

    \u0008
    For an API that you do not run, a cap in the client:
      midstream advise flags --engine hosted --journal streams.db
    """
    share = parse_share(wanted.freeze_share, "--freeze-share", zero=True)
    version = wanted.version()
    view = size.view(wanted.engine)
    name = wanted.engine or (None if view is None else view.engine)
    if name is None:
        raise typer.BadParameter(f"name one of {', '.join(FLAGS)}; or give --server.", param_hint="--engine")
    try:
        with ShownProgress("Simulating") as on_run:
            advice = advise_flags(
                name,
                records=_records(streams),
                pool=size.pool_if_shown(view),
                cap=wanted.cap,
                max_tokens=wanted.max_tokens,
                version=version,
                freeze_share=share,
                preemptions_per_minute=wanted.preemptions_per_minute,
                server=view,
                on_run=on_run,
            )
    except PoolError as error:
        raise CliError(str(error)) from error
    if as_json:
        print_json(document(advice))
    else:
        show(console(120), advice)
    return 0 if advice.flags.flags else NOT_ENOUGH


def _records(streams: StreamOptions) -> list[StreamRecord]:
    """Return the journal's streams; none if no journal is named, as flags can be had without."""
    if streams.journal is None and not os.environ.get(JOURNAL, "").strip():
        if streams.filtered:
            raise typer.BadParameter(
                "there is no journal to choose from; give --journal.", param_hint="--journal"
            )
        return []
    return streams.records()
