"""The only module that knows the openai SDK's clients: which are monitored, and where their calls pass.

Everything that streams, on every version from 1.40 on, passes three points: `request()` of the client, where the
caller's time begins; `_process_response()`, which knows the HTTP response and the attempts it took; and the constructor
of `Stream` or `AsyncStream`, whether it is called at once, by `.parse()` of a raw response, or by a helper. These three
are patched on the SDK's own classes, once; clients and requests are left as they are. A call that is not monitored
passes them untouched.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import wrapt

from midstream._support.internal_errors import report_internal_error
from midstream.integrations.openai.calls import (
    clients,
    in_progress,
    on_request,
    on_request_error,
    on_response,
)
from midstream.integrations.openai.streams import on_stream
from midstream.integrations.patching import Original, Patches, Wrapper, bind
from midstream.runtime.monitor import Monitor

_patches = Patches()


def is_client(obj: object) -> bool:
    """Tell whether this is an `OpenAI` or `AsyncOpenAI`, or of a subclass such as Azure's. It does not load the SDK."""
    sdk = sys.modules.get("openai")
    return sdk is not None and isinstance(obj, (sdk.OpenAI, sdk.AsyncOpenAI))


def watch(client: Any, monitor: Monitor) -> None:
    """Monitor this client and those derived from it. A second call replaces the settings of the first."""
    _patch_sdk()
    clients.register(client, monitor)


def watch_functions() -> None:
    """Be ready for monitored functions, whose calls are followed whichever client makes them."""
    clients.functions = True
    _when_imported()


def watch_all(monitor: Monitor) -> None:
    """Monitor every client of the process that has no monitor of its own, whenever it was or will be made."""
    clients.everyone = monitor
    _when_imported()


def unwatch_all() -> None:
    """Undo `watch_all`. The SDK gets its own methods back as soon as no client and no function needs ours."""
    clients.everyone = None
    if not clients.in_use:
        _patches.undo()


def _when_imported() -> None:
    """Patch the SDK now if it is loaded, or else when it will be: a process that never uses it need not load it."""
    if "openai" in sys.modules:
        _patch_sdk()
    elif not clients.awaited:
        clients.awaited = True
        wrapt.register_post_import_hook(_imported, "openai")


def _imported(_module: Any) -> None:
    try:
        if clients.in_use:
            _patch_sdk()
    except Exception as exc:  # noqa: BLE001 - the program's import goes on
        report_internal_error("instrumentation", exc, "openai clients are not monitored")


def _patch_sdk() -> None:
    from openai import AsyncStream, Stream  # noqa: PLC0415 - the SDK is loaded by the program that uses it
    from openai._base_client import AsyncAPIClient, SyncAPIClient  # noqa: PLC0415

    _patches.wrap(SyncAPIClient, "request", _request)
    _patches.wrap(AsyncAPIClient, "request", _request_async)
    _patches.wrap(SyncAPIClient, "_process_response", _process_response)
    _patches.wrap(AsyncAPIClient, "_process_response", _process_response_async)
    _patches.wrap(Stream, "__init__", _stream_made)
    _patches.wrap(AsyncStream, "__init__", _stream_made)
    bases: tuple[tuple[Any, Wrapper], ...] = ((SyncAPIClient, _request), (AsyncAPIClient, _request_async))
    for base, wrapper in bases:
        for kind in _subclasses(base):
            own = vars(kind)
            if "request" in own:  # a subclass's, or another instrumentation's; nested calls count once
                _patches.wrap(kind, "request", wrapper)
            for name in ("copy", "with_options"):
                if name in own:
                    _patches.wrap(kind, name, _derived)


def _subclasses(base: Any) -> Iterator[Any]:
    for kind in base.__subclasses__():
        yield kind
        yield from _subclasses(kind)


# Clients


def _derived(original: Original) -> Original:
    def derive(client: Any, /, *args: Any, **kwargs: Any) -> Any:
        derived = bind(original, client)(*args, **kwargs)
        return _inherit(client, derived)

    return derive


def _inherit(client: Any, derived: Any) -> Any:
    monitor = clients.own(client)
    if monitor is not None:
        clients.register(derived, monitor)
    return derived


# Calls


def _request(original: Original) -> Original:
    def request(client: Any, /, *args: Any, **kwargs: Any) -> Any:
        bound = bind(original, client)
        pending, args, kwargs = on_request(client, args, kwargs)
        if pending is None:
            return bound(*args, **kwargs)
        token = in_progress.set(pending)
        try:
            return bound(*args, **kwargs)
        except BaseException as exc:
            on_request_error(pending, exc)
            raise
        finally:
            pending.returned = True
            in_progress.reset(token)

    return request


def _request_async(original: Original) -> Original:
    async def request(client: Any, /, *args: Any, **kwargs: Any) -> Any:
        bound = bind(original, client)
        pending, args, kwargs = on_request(client, args, kwargs)
        if pending is None:
            return await bound(*args, **kwargs)
        token = in_progress.set(pending)
        try:
            return await bound(*args, **kwargs)
        except BaseException as exc:
            on_request_error(pending, exc)
            raise
        finally:
            pending.returned = True
            with suppress(ValueError):  # closed from another context: its variables are gone with it
                in_progress.reset(token)

    return request


def _process_response(original: Original) -> Original:
    def process(client: Any, /, *args: Any, **kwargs: Any) -> Any:
        on_response(client, kwargs)
        return bind(original, client)(*args, **kwargs)

    return process


def _process_response_async(original: Original) -> Original:
    async def process(client: Any, /, *args: Any, **kwargs: Any) -> Any:
        on_response(client, kwargs)
        return await bind(original, client)(*args, **kwargs)

    return process


def _stream_made(original: Original) -> Original:
    def made(stream: Any, /, *args: Any, **kwargs: Any) -> None:
        bind(original, stream)(*args, **kwargs)
        on_stream(stream)

    return made
