"""Attributes of streams from headers that the operator has named, in bounded numbers.

A header is whatever a client writes into it, and each combination of values is a set of time series. So values are cut
and cleaned, and past a number of combinations all further ones are `other`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from midstream._support.sanitize import clean
from midstream.proxy.headers import Headers, value_of
from midstream.runtime.monitor import PROCESS, Monitor
from midstream.runtime.settings import Settings

MOST_COMBINATIONS = 100
LONGEST_VALUE = 64
OTHER = "other"
SECRET = frozenset({"authorization", "cookie", "proxy-authorization", "x-api-key", "api-key"})
"""Headers that are never an attribute."""


class MonitorChoice:
    """The monitor for a request: one for each combination of attributes that its headers give."""

    def __init__(self, settings: Settings, attribute_headers: Mapping[str, str]) -> None:
        """`attribute_headers` maps names of headers to names of attributes."""
        self._settings = settings
        self._names = {header.lower().encode("ascii"): name for header, name in attribute_headers.items()}
        self._monitors: dict[tuple[str | None, ...], Monitor] = {}
        self._plain = self._monitor({})

    def of(self, headers: Headers) -> Monitor:
        """The monitor for a request with these headers."""
        if not self._names:
            return self._plain
        values = tuple(_value(value_of(headers, header)) for header in self._names)
        found = self._monitors.get(values)
        if found is None:
            if len(self._monitors) >= MOST_COMBINATIONS:
                values = tuple(None if value is None else OTHER for value in values)
                found = self._monitors.get(values)
            if found is None:
                given = zip(self._names.values(), values, strict=True)
                found = self._monitor({name: value for name, value in given if value is not None})
                self._monitors[values] = found
        return found

    def _monitor(self, attributes: dict[str, str]) -> Monitor:
        merged = {**self._settings.attributes, **attributes}
        return Monitor(replace(self._settings, attributes=merged), PROCESS)


def _value(header: bytes | None) -> str | None:
    text = "" if header is None else clean(header[:256].decode("utf-8", "replace"))
    return text[:LONGEST_VALUE].strip() or None
