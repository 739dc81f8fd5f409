"""Which HTTP clients are monitored. The libraries are patched when they are loaded, and not loaded by us."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import wrapt

from midstream._support.internal_errors import report_internal_error
from midstream.integrations.http import aiohttp_client, httpx_client, requests_client
from midstream.integrations.http.following import clients
from midstream.integrations.patching import Patches
from midstream.runtime.monitor import Monitor

_DOORS: dict[str, ModuleType] = {
    "httpx": httpx_client,
    "httpx2": httpx_client,
    "aiohttp": aiohttp_client,
    "requests": requests_client,
}
_patches = Patches()


def is_client(obj: object) -> bool:
    """Whether this is a client or session of a library that is covered. It loads none of them."""
    return any(
        isinstance(obj, door.client_types(sys.modules[name]))
        for name, door in _DOORS.items()
        if _loaded(name)
    )


def watch(client: Any, monitor: Monitor) -> None:
    """Monitor the answers that this client streams. A second call replaces the settings of the first."""
    clients.register(client, monitor)
    _when_imported()


def watch_functions() -> None:
    """Be ready for monitored functions, whose calls are followed whichever client makes them."""
    clients.functions = True
    _when_imported()


def watch_all(monitor: Monitor) -> None:
    """Monitor every client of the process that has no monitor of its own."""
    clients.everyone = monitor
    _when_imported()


def unwatch_all() -> None:
    """Undo `watch_all`. The libraries get their own methods back as soon as no client and no function needs ours."""
    clients.everyone = None
    if not clients.in_use:
        _patches.undo()


def _loaded(name: str) -> bool:
    library = sys.modules.get(name)
    spec = getattr(library, "__spec__", None)
    return library is not None and not getattr(spec, "_initializing", False)


def _when_imported() -> None:
    for name in _DOORS:
        if _loaded(name):
            _patch(sys.modules[name])
    if not clients.awaited:
        clients.awaited = True
        for name in _DOORS:
            if not _loaded(name):
                wrapt.register_post_import_hook(_imported, name)


def _imported(library: Any) -> None:
    if clients.in_use:
        _patch(library)


def _patch(library: Any) -> None:
    """Patch a library. One of a shape that is not known is left as it is, and named in the log."""
    try:
        _DOORS[library.__name__].patch(library, _patches)
    except Exception as exc:  # noqa: BLE001 - the program goes on
        report_internal_error("instrumentation", exc, f"{library.__name__} clients are not monitored")
