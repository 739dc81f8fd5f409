"""Reads which two spans of time are to be compared."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone

import typer

from midstream.sources.select import SelectionError, moment, span


@dataclass(frozen=True, slots=True)
class Span:
    """A span of time as the user wrote it; None for an open end."""

    since: str | None
    until: str | None

    @property
    def words(self) -> str:
        """How it is called in a message."""
        if self.since is None:
            return f"the time before {self.until}"
        return f"the time from {self.since}" + (f" to {self.until}" if self.until is not None else " on")


def spans_of(
    at: str | None, before: str | None, after: str | None, whole: Span, now: float
) -> tuple[Span, Span]:
    """Return both spans, checked; `at` splits the `whole`. Raises BadParameter."""
    if at is not None:
        if before is not None or after is not None:
            raise typer.BadParameter("give --at, or both --before and --after.", param_hint="--at")
        spans = Span(whole.since, at), Span(at, whole.until)
        for found in spans:
            _check(found, "--at", now)
        return spans
    if whole != Span(None, None):
        raise typer.BadParameter("they go with --at.", param_hint="--since, --until")
    if before is None or after is None:
        raise typer.BadParameter(
            "name what is compared: --at WHEN, or --before FROM..TO and --after FROM..TO, or two journals.",
            param_hint="--at",
        )
    one, other = _span(before, "--before", now), _span(after, "--after", now)
    begun, ended = span(None, one.until, now)[1], span(other.since, None, now)[0]
    if begun is not None and ended is not None and begun > ended:
        raise typer.BadParameter(
            "it ends after --after begins, so that streams would be in both.", param_hint="--before"
        )
    return one, other


def _span(text: str, option: str, now: float) -> Span:
    since, dots, until = text.partition("..")
    if not (dots and since.strip() and until.strip()):
        raise typer.BadParameter(
            f"{text!r} is not FROM..TO, such as 2026-11-01..2026-11-02 or 3d..2d.", param_hint=option
        )
    found = Span(since.strip(), until.strip())
    _check(found, option, now)
    return found


def _check(found: Span, option: str, now: float) -> None:
    try:
        span(found.since, found.until, now)
    except SelectionError as error:
        raise typer.BadParameter(f"{error}.", param_hint=option) from error


def as_long_before(before: Span, after: Span, now: float) -> tuple[Span, Span]:
    """Give a span without a beginning one, so that it is as long as the one after it: a server has no first stream."""
    if before.since is not None:
        return before, after
    split, ended = moment(after.since or "now", now), moment(after.until or "now", now)
    start = datetime.fromtimestamp(split - (ended - split), tz=timezone.utc).isoformat()
    return Span(start, before.until), after
