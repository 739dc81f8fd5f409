"""The library's front door: `monitor()` and `streams()`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeVar

from midstream import openai
from midstream._model import EndHook, Hook, OpenStream
from midstream._monitor import PROCESS, Monitor
from midstream._settings import UNSET, Unset, disabled, settings_from

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider

T = TypeVar("T")


def monitor(
    obj: T,
    *,
    freeze_after_s: float | None | Unset = UNSET,
    on_freeze: Hook | None = None,
    on_thaw: Hook | None = None,
    on_end: EndHook | None = None,
    attributes: Mapping[str, str] | None | Unset = UNSET,
    include_usage: bool | Unset = UNSET,
    meter_provider: MeterProvider | None = None,
) -> T:
    """Monitor every stream of an openai client, and of the clients derived from it. Returns the client itself.

    `freeze_after_s`: server silence in seconds from which a gap is a freeze (default 5, None switches freezes off).
    `on_freeze`, `on_thaw`: called with a `Freeze` when a stream freezes, while it lasts, and when it goes on.
    `on_end`: called with the `StreamRecord` of every stream, exactly once. Hooks run on a thread of their own; what they
    raise is logged once and changes nothing for the caller.
    `attributes`: a few fixed attributes for the metrics, such as `{"team": "search"}`.
    `include_usage`: ask the server for token counts where the caller did not decide; the extra chunk stays hidden.
    `meter_provider`: where the metrics go, by default the global one.

    Keywords win over `MIDSTREAM_FREEZE_AFTER_S`, `MIDSTREAM_ATTRIBUTES` and `MIDSTREAM_INCLUDE_USAGE`;
    `MIDSTREAM_DISABLED=1` leaves every client as it is. A second call for the same client replaces its settings.

    Raises ValueError or TypeError for an invalid setting, naming the value and the remedy. Nothing raises later.
    """
    settings = settings_from(
        os.environ,
        {
            "freeze_after_s": freeze_after_s,
            "on_freeze": on_freeze,
            "on_thaw": on_thaw,
            "on_end": on_end,
            "attributes": attributes,
            "include_usage": include_usage,
        },
    )
    if not openai.is_client(obj):
        raise TypeError(f"monitor() takes an OpenAI or AsyncOpenAI client, got {type(obj).__name__}")
    if not disabled(os.environ):
        openai.watch(obj, Monitor(settings, PROCESS, meter_provider))
    return obj


def streams() -> tuple[OpenStream, ...]:
    """Every monitored stream that is open now in this process, the longest silence first."""
    return PROCESS.streams()
