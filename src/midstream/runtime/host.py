"""What surrounds a tracker: the monitor it belongs to, the state of its end, a sentinel for its iterator."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from midstream._support.lifecycle import RecoverableLock
from midstream.runtime.hooks import Hooks
from midstream.runtime.settings import Settings
from midstream.runtime.watcher import Roster
from midstream.stream.model import Phase, StreamRecord
from midstream.stream.session import Session

if TYPE_CHECKING:
    from opentelemetry.context import Context

    from midstream.telemetry.recorder import Labels, Recorder


class RecordWriter(Protocol):
    """A journal."""

    def prepare(self) -> None:
        """Get ready for a record: a stream is open."""

    def write(self, record: StreamRecord) -> None:
        """Have the record written soon."""


class Host(Protocol):
    """What a tracker needs of the monitor that it belongs to."""

    lock: RecoverableLock
    hooks: Hooks
    roster: Roster

    @property
    def settings(self) -> Settings:
        """The settings in force."""

    @property
    def recorder(self) -> Recorder:
        """Where the metrics go."""

    @property
    def journal(self) -> RecordWriter | None:
        """Where the records go."""

    @property
    def clock(self) -> Callable[[], float]:
        """The monotonic clock."""

    @property
    def wall(self) -> Callable[[], float]:
        """Unix time."""

    def sessions(self) -> list[Session]:
        """The sessions of all streams that are open."""


class Droppable(Protocol):
    """A stream that can be handed over when its iterator is gone."""

    def dropped(self) -> None:
        """The iterator is gone."""


class Sentinel:
    """Lives in the frame of an iterator. When the frame is gone, however that came, the stream has ended."""

    __slots__ = ("_tracker",)

    def __init__(self, tracker: Droppable) -> None:
        self._tracker = tracker

    def __del__(self) -> None:
        self._tracker.dropped()


CLAIM_S = 5.0
"""How long one thread may take to end a stream; after that it was interrupted, and another may go on."""


class CalledOnce:
    """A hook that is called the first time only: an end that was interrupted may queue it again."""

    def __init__(self, hook: Callable[[StreamRecord], object]) -> None:
        self.__qualname__ = getattr(hook, "__qualname__", type(hook).__name__)
        self._hook = [hook]

    def __call__(self, record: StreamRecord) -> None:
        """Call it, if that was not done."""
        try:
            hook = self._hook.pop()  # one step, which an exception cannot divide
        except IndexError:
            return
        hook(record)


class Ending:
    """How far the end of a stream has come."""

    __slots__ = ("claimed_at", "delivered", "dropped_at", "hook", "measured", "record", "was_dropped")

    def __init__(self) -> None:
        self.claimed_at: float | None = None
        self.was_dropped = False
        self.dropped_at: float | None = None
        self.record: StreamRecord | None = None
        self.hook: CalledOnce | None = None
        self.measured = 0
        self.delivered = 0  # how many of the receivers of the record have been given it

    def is_claimed(self, now: float) -> bool:
        """Whether a thread is ending the stream at this moment."""
        return self.claimed_at is not None and now - self.claimed_at < CLAIM_S


def deliver(
    ending: Ending,
    record: StreamRecord,
    host: Host,
    labels: Labels,
    context: Context | None,
    *,
    frozen_s: float,
    phase: Phase,
    wait: bool,
) -> None:
    """Give the record to its receivers, and the counter the seconds frozen in this phase that it has not got yet.

    No receiver is given it twice, also if this is interrupted and called again.
    """
    if ending.delivered == 0:
        host.recorder.frozen_for(labels, frozen_s, phase=phase)
        host.recorder.ended(labels, record, context, ending)
        ending.delivered = 1
    if ending.delivered == 1:
        ending.delivered = 2
        if host.journal is not None:
            host.journal.write(record)
    if ending.delivered == 2:
        if host.settings.on_end is not None:
            ending.hook = ending.hook or CalledOnce(host.settings.on_end)
            host.hooks.call(ending.hook, record, wait=wait)
        ending.delivered = 3
