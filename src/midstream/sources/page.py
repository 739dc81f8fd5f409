"""A page of metrics, taken apart by Prometheus' own parser: samples by their full name."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from prometheus_client import Metric
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_fd_to_metric_families

from midstream._support.sanitize import valid_name

# They are declared for files, and iterate over them.
_read_text: Callable[[Any], Iterable[Metric]] = text_fd_to_metric_families
_read_openmetrics: Callable[[Any], Iterable[Metric]] = openmetrics.text_fd_to_metric_families

MOST_SERIES = 50_000
LONGEST_LINE = 8192
_WORD = re.compile(r"(# *(?:TYPE|HELP|UNIT) +)?([a-zA-Z_:][a-zA-Z0-9_:.]*)")
_VALUE = re.compile(r"[}\s][+-]?(?:\d[\d.eE+-]*|NaN|[Ii]nf\w*)(?:\s|$)")
_BETWEEN_LOOKS = 65_536
"""Characters between two looks at the clock: a tenth of a second at worst."""
READ_S = 10.0
"""How long a page may take to be read where no deadline is given."""
_NO_PAGE = "no page of metrics in Prometheus' format; give what the server shows at /metrics"


class PageError(ValueError):
    """This is no page of metrics that can be read; its message is one sentence."""


class Sample(NamedTuple):
    """One line of the page."""

    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True, slots=True)
class Reading:
    """One number as a server gave it, or why there is none. It is never 0 for want of a number."""

    value: float | None
    why: str = ""
    """Of a number: what must be known to read it, often nothing. Without one: why not, and what would help."""
    exists: bool = True
    """False if this engine has no such thing, and not only no number for it."""


@dataclass(frozen=True, slots=True)
class Page:
    """All samples by name, and the names of families that are declared, with samples or without."""

    samples: Mapping[str, tuple[Sample, ...]] = field(default_factory=dict)
    declared: frozenset[str] = frozenset()
    others: frozenset[str] = frozenset()
    """Names of series that are not read."""

    def named(self, *names: str) -> tuple[Sample, ...]:
        """Return the samples of the first of these names that has any."""
        return next((self.samples[name] for name in names if name in self.samples), ())

    def has(self, prefix: str) -> bool:
        """Return whether any name on the page begins so."""
        return any(name.startswith(prefix) for name in (*self.samples, *self.declared, *self.others))


Read: TypeAlias = Callable[[Page], Reading]


def page_of(
    text: str, content_type: str = "", *, prefixes: tuple[str, ...] = ("",), deadline: float | None = None
) -> Page:
    """Take a page apart, by a deadline of `time.monotonic`. Raises PageError if it is not one, or takes too long.

    Every line is looked at; those of series whose names begin with one of `prefixes` are left to Prometheus' own
    parser. It takes time that grows with the square of a line, so that no line may be longer than any engine's is.
    """
    names: set[str] = set()
    lines = _checked(text, names, prefixes, time.monotonic() + READ_S if deadline is None else deadline)
    openmetrics_ = "openmetrics" in content_type
    samples: dict[str, dict[frozenset[tuple[str, str]], Sample]] = {}
    declared: set[str] = set()
    number = 0
    try:
        families = (_read_openmetrics if openmetrics_ else _read_text)(lines)
        for family in families:
            if number > MOST_SERIES:
                break
            if family.type != "unknown":
                declared |= (
                    {family.name, f"{family.name}_total"} if family.type == "counter" else {family.name}
                )
            for sample in family.samples:
                number += 1
                # A series that is there twice is one, and its first line counts, as it does for Prometheus.
                series = samples.setdefault(sample.name, {})
                series.setdefault(frozenset(sample.labels.items()), _sample(sample.labels, sample.value))
                if number > MOST_SERIES:
                    break
    except PageError:
        raise
    except Exception as error:  # the parser fails on what it does not expect in whatever way comes first
        raise PageError(_NO_PAGE) from error
    if number > MOST_SERIES:
        raise PageError(f"a page of more than {MOST_SERIES:,} series; check the address")
    return Page(
        {name: tuple(found.values()) for name, found in samples.items()},
        frozenset(declared),
        frozenset(names),
    )


def _sample(labels: Mapping[str, str], value: object) -> Sample:
    shown = {name: valid_name(text) for name, text in labels.items()}
    try:
        return Sample(shown, float(value))  # type: ignore[arg-type]
    except OverflowError:  # an integer of 400 digits
        return Sample(shown, math.inf)


def _checked(text: str, names: set[str], prefixes: tuple[str, ...], deadline: float) -> Iterator[str]:
    """Yield the lines that the parser shall read, and note the names of all others. Raises PageError."""
    start, looked_at = 0, 0
    while start < len(text):
        if start >= looked_at:
            looked_at = start + _BETWEEN_LOOKS
            if time.monotonic() > deadline:
                raise PageError("a page that takes too long to read; check the address")
        end = text.find("\n", start)
        end = len(text) if end < 0 else end
        if end - start > LONGEST_LINE:
            raise PageError(f"no page of metrics: it has a line of more than {LONGEST_LINE:,} characters")
        line = text[start:end].strip()
        start = end + 1
        if not line:
            continue
        word = _WORD.match(line)
        if line.startswith("#"):
            if line == "# EOF" or (word is not None and word[2].startswith(prefixes)):
                yield f"{line}\n"
        elif word is None or line.startswith("{") or word[2].startswith(prefixes):
            yield f"{line}\n"  # the parser says what is wrong with it
        elif not _VALUE.search(line):
            raise PageError(_NO_PAGE)
        elif len(names) < MOST_SERIES:
            names.add(word[2])


def total(*names: str, absent: str, among: Callable[[Iterable[Sample]], Iterable[Sample]] = tuple) -> Read:
    """Make what adds up all samples of the first of these names that is there."""
    return lambda page: _combined(among(page.named(*names)), sum, names[0], absent)


def worst(*names: str, absent: str, among: Callable[[Iterable[Sample]], Iterable[Sample]] = tuple) -> Read:
    """Make what takes the highest sample of the first of these names that is there."""
    return lambda page: _combined(among(page.named(*names)), max, names[0], absent)


def none(why: str) -> Read:
    """Make what says that the engine has no such thing."""
    return lambda _page: Reading(None, why, exists=False)


def unknown(why: str) -> Read:
    """Make what says that the engine does not tell."""
    return lambda _page: Reading(None, why)


def _combined(
    found: Iterable[Sample], how: Callable[[list[float]], float], name: str, absent: str
) -> Reading:
    values = [sample.value for sample in found]
    if not values:
        return Reading(None, absent)
    value = how(values)
    if not math.isfinite(value) or value < 0:
        return Reading(None, f"{name} says {value:g}, which is no such number")
    return Reading(value)
