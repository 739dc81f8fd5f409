"""Which clients of the openai SDK are monitored, copies among them.

`with_options()` and `copy()` of a monitored client pass through `clients`, which registers what they return. A
`copy.copy()` passes nowhere: it is recognised by what it shares with its original. The SDK shares most of a client with
the clients that it was derived from and with those derived from it, its base URL among it. So a client that is
registered is given an equal URL object that is its own, the one thing on a client that we touch.
"""

from __future__ import annotations

import copy
import weakref
from dataclasses import dataclass
from typing import Any

from midstream._support.internal_errors import report_internal_error
from midstream.runtime.monitor import Monitor
from midstream.runtime.scope import Clients

_URL = "_base_url"
_OTHERS = ("_custom_headers", "_custom_query")
"""Dictionaries that the SDK makes anew for a client, unless it is given some."""


@dataclass(slots=True)
class _Original:
    """A registered client, as its copies show it: its own URL object, and the identities of the dictionaries."""

    url: weakref.ref[Any]
    client: weakref.ref[Any]
    others: tuple[int, ...]
    monitor: Monitor


class SdkClients(Clients):
    """The monitored clients of the SDK. A `copy.copy()` of one, and of that, is monitored as its original is."""

    def __init__(self) -> None:
        super().__init__()
        self._originals: dict[int, _Original] = {}

    @property
    def in_use(self) -> bool:
        """Whether any call could have to be followed."""
        return super().in_use or bool(self._originals)

    def register(self, client: Any, monitor: Monitor) -> None:
        """Give a client a monitor of its own, in place of an earlier one, and so its copies."""
        super().register(client, monitor)
        try:
            self._mark(client, monitor)
        except Exception as exc:  # noqa: BLE001 - a client of an unknown shape is monitored, its copies are not
            report_internal_error("client", exc)

    def own(self, client: Any) -> Monitor | None:
        """The monitor that this client was given, or the one that it is a copy of."""
        found = super().own(client)
        if found is None and self._originals:
            original = self._original_of(client)
            found = None if original is None else original.monitor
        return found

    def _mark(self, client: Any, monitor: Monitor) -> None:
        known = self._original_of(client)
        if known is not None and known.client() is client:
            known.monitor = monitor
            return
        if _URL not in vars(client):
            return
        url = vars(client)[_URL] = copy.copy(vars(client)[_URL])
        key = id(url)
        self._originals[key] = _Original(
            weakref.ref(url, lambda _: self._originals.pop(key, None)),
            weakref.ref(client),
            _others(client),
            monitor,
        )

    def _original_of(self, client: Any) -> _Original | None:
        url = getattr(client, _URL, None)
        found = self._originals.get(id(url))
        if found is None or found.url() is not url or found.others != _others(client):
            return None
        return found


def _others(client: Any) -> tuple[int, ...]:
    return tuple(id(getattr(client, name, None)) for name in _OTHERS)
