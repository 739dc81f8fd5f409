"""A call between its request and its stream.

The HTTP response is the one object that every way to a stream has in common (`create()`, raw responses, the helpers),
and that no other instrumentation replaces. Its `extensions`, which HTTP libraries have for such data, carry the call
until the stream is made, and afterwards the fact that the stream is followed.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from dataclasses import dataclass, field
from typing import Any

from opentelemetry import context as otel_context

from midstream.runtime.monitor import Monitor
from midstream.runtime.tracker import Tracker
from midstream.stream.chunks import Reader
from midstream.stream.model import Call

_KEY = "midstream"
_FOLLOWED = "followed"
_TRANSPORT_KEY = "midstream.transport"


@dataclass(slots=True)
class PendingCall:
    """A call whose stream has not been made yet.

    `owner` is the task or thread that makes the call. `returned` is set when the call has returned: the context
    variable that holds a pending call is copied into every task that is started meanwhile, and must mean nothing there.
    """

    monitor: Monitor
    call: Call
    context: otel_context.Context = field(repr=False)  # the caller's own, baggage and all
    hide_usage: bool = False
    client: int = 0
    read: Reader | None = None
    owner: object = field(default=None, repr=False)
    returned: bool = False

    def is_made_by(self, client: Any) -> bool:
        """Whether the code that runs now is part of this call by this client."""
        return self.client == id(client) and self.is_made_by_running_code()

    def is_made_by_running_code(self) -> bool:
        """Whether the code that runs now is part of this call."""
        return not self.returned and self.owner == current_owner()


def current_owner() -> object:
    """What runs now: the asyncio or trio task if there is one, else the thread. Only for comparison."""
    task: object = None
    loop = asyncio._get_running_loop()  # `current_task()` alone raises where none runs, which takes longer
    if loop is not None:
        task = asyncio.current_task(loop)
    elif "trio" in sys.modules:
        task = _trio_task(sys.modules["trio"].lowlevel)
    if task is not None:
        return id(task)
    return -threading.get_ident()


def _trio_task(lowlevel: Any) -> object:
    """The task of trio that runs now; None if none does. Since trio 0.23 it need not raise to say so."""
    runs = getattr(lowlevel, "in_trio_task", None)
    if runs is not None:
        return lowlevel.current_task() if runs() else None
    try:
        return lowlevel.current_task()
    except RuntimeError:
        return None


def keep_pending(response: Any, pending: PendingCall) -> None:
    """Leave the call with its HTTP response until a stream is made of that."""
    response.extensions[_KEY] = pending


def take_pending(response: Any) -> PendingCall | None:
    """The call of this response, once: the first stream that is made of a response is the one to follow."""
    kept = response.extensions.get(_KEY)
    if not isinstance(kept, PendingCall):
        return None
    mark_followed(response)
    return kept


def mark_followed(response: Any) -> None:
    """Note that the stream of this response is followed."""
    response.extensions[_KEY] = _FOLLOWED


def is_followed(response: Any) -> bool:
    """Whether the stream of this response is followed, whatever stands around the stream by now."""
    return getattr(response, "extensions", {}).get(_KEY) == _FOLLOWED


def mark_observed(response: Any, tracker: Tracker) -> None:
    """Note that the body of this response is observed, by this tracker."""
    response.extensions[_TRANSPORT_KEY] = tracker


def observed_by(response: Any) -> Tracker | None:
    """The tracker that observes the body of this response, if one does and it has not ended."""
    tracker = getattr(response, "extensions", {}).get(_TRANSPORT_KEY)
    return tracker if isinstance(tracker, Tracker) and not tracker.session.ended else None
