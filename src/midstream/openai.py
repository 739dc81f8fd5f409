"""The only module that knows the openai SDK's clients: which are monitored, and where their calls pass.

Everything that streams, on every version from 1.40 on, passes three points: `request()` of the client, where the
caller's time begins; `_process_response()`, which knows the HTTP response and the attempts it took; and the constructor
of `Stream` or `AsyncStream`, whether it is called at once, by `.parse()` of a raw response, or by a helper. These three
are patched on the SDK's own classes, once; clients and requests are left as they are. A call that nobody monitors
passes them untouched.
"""

from __future__ import annotations

import sys
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

import wrapt
from opentelemetry import context as otel_context

from midstream._failures import error_type_of
from midstream._guard import trouble
from midstream._monitor import Monitor
from midstream._openai_streams import Asked, answers, current_span, follow
from midstream._patch import Original, Patches
from midstream._request import call_of, count_retries, server_of, with_usage
from midstream._scope import Clients

_asked: ContextVar[Asked | None] = ContextVar("midstream_call", default=None)
_clients = Clients()
_patches = Patches()


def is_client(obj: object) -> bool:
    """Whether this is an `OpenAI` or `AsyncOpenAI`, or of a subclass such as Azure's; the SDK is not imported for it."""
    sdk = sys.modules.get("openai")
    return sdk is not None and isinstance(obj, (sdk.OpenAI, sdk.AsyncOpenAI))


def watch(client: Any, monitor: Monitor) -> None:
    """Monitor this client and those derived from it. A second call replaces the settings of the first."""
    _patch_sdk()
    _patch_client_class(type(client))
    _clients.register(client, monitor)


def watch_functions() -> None:
    """Be ready for monitored functions, whose calls are followed whichever client makes them."""
    _clients.functions = True
    _when_imported()


def watch_all(monitor: Monitor) -> None:
    """Monitor every client of the process that has no monitor of its own, whenever it was or will be made."""
    _clients.everyone = monitor
    _when_imported()


def unwatch_all() -> None:
    """Undo `watch_all`. The SDK gets its own methods back as soon as no client and no function needs ours."""
    _clients.everyone = None
    if not _clients.in_use:
        _patches.undo()


def _when_imported() -> None:
    """Patch the SDK now if it is loaded, or else when it will be: a process that never uses it need not load it."""
    if "openai" in sys.modules:
        _patch_sdk()
    elif not _clients.awaited:
        _clients.awaited = True
        wrapt.register_post_import_hook(_imported, "openai")


def _imported(_module: Any) -> None:
    try:
        if _clients.in_use:
            _patch_sdk()
    except Exception as exc:  # noqa: BLE001 - the program's import goes on
        trouble("instrumentation", exc, "openai clients are not monitored")


def _patch_sdk() -> None:
    from openai import AsyncStream, Stream
    from openai._base_client import AsyncAPIClient, SyncAPIClient

    _patches.wrap(SyncAPIClient, "request", _request)
    _patches.wrap(AsyncAPIClient, "request", _request_async)
    _patches.wrap(SyncAPIClient, "_process_response", _process_response)
    _patches.wrap(AsyncAPIClient, "_process_response", _process_response_async)
    _patches.wrap(Stream, "__init__", _made)
    _patches.wrap(AsyncStream, "__init__", _made)
    for kind in (SyncAPIClient, AsyncAPIClient):
        if not hasattr(kind, "__copy__"):
            _patches.add(kind, "__copy__", _copy)


def _patch_client_class(client_class: type) -> None:
    from openai._base_client import AsyncAPIClient

    for kind in client_class.__mro__:
        own = vars(kind)
        if "request" in own:  # a subclass's, or another instrumentation's; nested calls count once
            _patches.wrap(kind, "request", _request_async if issubclass(kind, AsyncAPIClient) else _request)
        for name in ("copy", "with_options"):
            if name in own:
                _patches.wrap(kind, name, _derived)


# Clients


def _derived(original: Original) -> Original:
    def derive(client: Any, /, *args: Any, **kwargs: Any) -> Any:
        derived = original.__get__(client)(*args, **kwargs)
        return _inherit(client, derived)

    return derive


def _copy(client: Any) -> Any:
    """What `copy.copy` does for a class without `__copy__`; the copy stays monitored."""
    make, args, *rest = client.__reduce_ex__(4)
    twin = make(*args)
    state = rest[0] if rest else None
    if hasattr(twin, "__setstate__"):
        twin.__setstate__(state)
    elif state:
        twin.__dict__.update(state)
    return _inherit(client, twin)


def _inherit(client: Any, derived: Any) -> Any:
    monitor = _clients.own(client)
    if monitor is not None:
        _clients.register(derived, monitor)
    return derived


# Calls


def _ask(client: Any, args: Any, kwargs: Any) -> tuple[Asked | None, Any, Any]:
    """The call that begins here, if it streams and is ours to follow, and its arguments."""
    try:
        if not kwargs.get("stream") or _asked_by(client) is not None:
            return None, args, kwargs
        monitor = _clients.monitor_of(client)
        if monitor is None:
            return None, args, kwargs
        options = kwargs["options"] if "options" in kwargs else args[1]
        process = monitor.process
        call = call_of(client, options, started=process.clock(), started_at=process.wall(), span=current_span())
        asked = Asked(monitor, call, otel_context.get_current(), client=id(client))
        if monitor.settings.include_usage:
            injected = with_usage(options, call.operation)
            if injected is not None:
                asked.hide_usage = True
                if "options" in kwargs:
                    kwargs = {**kwargs, "options": injected}
                else:
                    args = (args[0], injected, *args[2:])
        return asked, args, kwargs
    except Exception as exc:  # noqa: BLE001 - the caller's request goes out as it would without us
        trouble("request", exc)
        return None, args, kwargs


def _asked_by(client: Any) -> Asked | None:
    asked = _asked.get()
    return asked if asked is not None and asked.client == id(client) else None


def _refuse(asked: Asked, exc: BaseException) -> None:
    try:
        monitor, call = asked.monitor, asked.call
        took = monitor.process.clock() - (call.started or 0.0)
        monitor.refused(call, took, error_type_of(exc), asked.context)
    except Exception as own:  # noqa: BLE001
        trouble("request", own)


def _request(original: Original) -> Original:
    def request(client: Any, /, *args: Any, **kwargs: Any) -> Any:
        bound = original.__get__(client)
        asked, args, kwargs = _ask(client, args, kwargs)
        if asked is None:
            return bound(*args, **kwargs)
        token = _asked.set(asked)
        try:
            return bound(*args, **kwargs)
        except BaseException as exc:
            _refuse(asked, exc)
            raise
        finally:
            _asked.reset(token)

    return request


def _request_async(original: Original) -> Original:
    async def request(client: Any, /, *args: Any, **kwargs: Any) -> Any:
        bound = original.__get__(client)
        asked, args, kwargs = _ask(client, args, kwargs)
        if asked is None:
            return await bound(*args, **kwargs)
        token = _asked.set(asked)
        try:
            return await bound(*args, **kwargs)
        except BaseException as exc:
            _refuse(asked, exc)
            raise
        finally:
            try:
                _asked.reset(token)
            except ValueError:  # closed from another context: its variables are gone with it
                pass

    return request


def _process_response(original: Original) -> Original:
    def process(client: Any, /, *args: Any, **kwargs: Any) -> Any:
        _answer(client, kwargs)
        return original.__get__(client)(*args, **kwargs)

    return process


def _process_response_async(original: Original) -> Original:
    async def process(client: Any, /, *args: Any, **kwargs: Any) -> Any:
        _answer(client, kwargs)
        return await original.__get__(client)(*args, **kwargs)

    return process


def _answer(client: Any, kwargs: Any) -> None:
    """A response has come for a call that streams: it may be parsed at once, later or never."""
    try:
        if not kwargs.get("stream"):
            return
        asked = _asked_by(client) or _unasked(client, kwargs["options"])
        if asked is not None:
            response = kwargs["response"]
            address, port = server_of(response, asked.call)
            retries = count_retries(response, kwargs.get("retries_taken"))
            asked.call = replace(asked.call, server_address=address, server_port=port, retries=retries)
            answers[response] = asked
    except Exception as exc:  # noqa: BLE001
        trouble("response", exc)


def _unasked(client: Any, options: Any) -> Asked | None:
    """A call whose beginning was not seen: somebody has put back an older `request()` over ours."""
    monitor = _clients.monitor_of(client)
    if monitor is None:
        return None
    call = call_of(client, options, started=None, started_at=monitor.process.wall(), span=current_span())
    return Asked(monitor, call, otel_context.get_current())


def _made(original: Original) -> Original:
    def made(stream: Any, /, *args: Any, **kwargs: Any) -> None:
        original.__get__(stream)(*args, **kwargs)
        follow(stream)

    return made
