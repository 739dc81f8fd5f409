"""A page of metrics, taken apart by Prometheus' own parser: samples by their full name."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from prometheus_client import Metric
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_fd_to_metric_families

from midstream._support.sanitize import valid_name
from midstream.engines.page import MetricsPage, PageSample

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


def page_of(
    text: str, content_type: str = "", *, prefixes: tuple[str, ...] = ("",), deadline: float | None = None
) -> MetricsPage:
    """Take a page apart, by a deadline of `time.monotonic`. Raises PageError if it is not one, or takes too long.

    Every line is looked at; those of series whose names begin with one of `prefixes` are left to Prometheus' own
    parser. It takes time that grows with the square of a line, so that no line may be longer than any engine's is.
    """
    names: set[str] = set()
    lines = _checked(text, names, prefixes, time.monotonic() + READ_S if deadline is None else deadline)
    openmetrics_ = "openmetrics" in content_type
    samples: dict[str, dict[frozenset[tuple[str, str]], PageSample]] = {}
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
    return MetricsPage(
        {name: tuple(found.values()) for name, found in samples.items()},
        frozenset(declared),
        frozenset(names),
    )


def _sample(labels: Mapping[str, str], value: object) -> PageSample:
    shown = {name: valid_name(text) for name, text in labels.items()}
    try:
        return PageSample(shown, float(value))  # type: ignore[arg-type]
    except OverflowError:  # an integer of 400 digits
        return PageSample(shown, math.inf)


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
