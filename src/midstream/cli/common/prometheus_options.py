"""The option that reads a fleet from a Prometheus-compatible API, for every command that can: which one, and how."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, TypeAlias

import typer

from midstream.cli.common.errors import CliError
from midstream.cli.common.http_options import PROMETHEUS_TOKEN, HeaderOption, headers_of
from midstream.sources.fleet import Fleet
from midstream.sources.prometheus import PrometheusError, PrometheusSource
from midstream.sources.select import SelectionError, span
from midstream.stream.model import FREEZE_AFTER_S

PrometheusOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--prometheus",
        metavar="URL",
        help="A Prometheus, Mimir, Thanos or VictoriaMetrics instead of a journal.",
        show_default=False,
    ),
]


@dataclass(frozen=True, slots=True)
class PrometheusOptions:
    """The option group that reads a fleet's metrics instead of a journal."""

    prometheus: PrometheusOption = None
    header: HeaderOption = None


def source_of(url: str, headers: Sequence[str] | None) -> PrometheusSource:
    """Return what asks the API, with the token of MIDSTREAM_PROMETHEUS_TOKEN if it is set. Raises BadParameter."""
    try:
        return PrometheusSource(url, headers=headers_of(headers, PROMETHEUS_TOKEN))
    except ValueError as error:
        raise typer.BadParameter(f"{error}.", param_hint="--prometheus") from error


def fleet_of(
    source: PrometheusSource,
    since: str | None,
    until: str | None,
    where: Sequence[str] | None,
    *,
    by: Sequence[str] = (),
    freeze_after_s: float = FREEZE_AFTER_S,
    default_since: str = "24h",
) -> Fleet:
    """Return what the options choose. Raises CliError, or BadParameter for the options."""
    now = time.time()
    try:
        start, end = span(since or default_since, until, now)
        return source.fleet(
            start or 0.0, end or now, by=by, where=tuple(where or ()), freeze_after_s=freeze_after_s
        )
    except SelectionError as error:
        raise typer.BadParameter(f"{error}.", param_hint="--since, --until or --where") from error
    except PrometheusError as error:
        raise CliError(str(error)) from error
