"""The OpenTelemetry entry point: `opentelemetry-instrument` finds it, and programs may call it themselves.

It needs `opentelemetry-instrumentation`, which programs that start here have.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Any

from opentelemetry.instrumentation.instrumentor import (  # type: ignore[attr-defined,import-not-found,unused-ignore]
    BaseInstrumentor,
)

from midstream._support.internal_errors import safe_log
from midstream.integrations.attach import instrument, uninstrument

_INSTRUMENTS = ("openai >= 1.40, < 4",)


_KEYWORDS = (
    "freeze_after_s",
    "on_freeze",
    "on_thaw",
    "on_end",
    "attributes",
    "include_usage",
    "journal",
    "stall_timeout_s",
    "first_content_timeout_s",
    "meter_provider",
)


class MidstreamInstrumentor(BaseInstrumentor):  # type: ignore[misc,unused-ignore]  # it is untyped, or not there
    """Monitors the streams of every openai client in the process. Takes the keywords of `midstream.instrument()`.

    Whatever is wrong is logged and never raised: an exception here would keep the loader from all that come after.
    """

    def instrumentation_dependencies(self) -> Collection[str]:
        """What must be installed for this to be of use."""
        return _INSTRUMENTS

    def _instrument(self, **kwargs: Any) -> None:
        try:
            instrument(**{name: kwargs[name] for name in _KEYWORDS if name in kwargs})
        except Exception as exc:  # noqa: BLE001 - see above
            safe_log(logging.ERROR, "openai clients are not monitored: %s", exc)

    def _uninstrument(self, **_kwargs: Any) -> None:
        uninstrument()
