"""What type checkers must refuse. Never run: each line is wrong, and says so to both; one that is right is an error."""

# mypy tells of a comment that was not needed by itself; pyright when asked:
# pyright: reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

from openai import AsyncOpenAI, OpenAI

from midstream import Freeze, Outcome, StreamRecord, instrument, monitor, setup, streams
from midstream.journal import read, read_records
from midstream.testing import ManualClock, collect, scripted


def on_end(record: StreamRecord) -> None:
    """A hook for the end."""


def on_freeze(freeze: Freeze) -> None:
    """A hook for a freeze."""


@monitor
def ask(question: str, *, limit: int = 10) -> Iterator[str]:
    """A monitored function keeps its parameters."""
    yield question * limit


@monitor(freeze_after_s=10)
async def ask_async(question: str) -> AsyncIterator[str]:
    """With settings, too."""
    yield question


@monitor
async def answer(question: str) -> str:
    """A monitored coroutine function is still one."""
    return question


# Functions: arguments that they do not take, and results that they do not give.
ask(3)  # type: ignore[arg-type]
ask("why", 3)  # type: ignore[call-arg]
ask("why", limit="3")  # type: ignore[arg-type]
ask()  # type: ignore[call-arg]
ask_async(3)  # type: ignore[arg-type]
ask_async("why", limit=3)  # type: ignore[call-arg]
number: int = next(ask("why"))  # type: ignore[assignment]
said: str = answer("why")  # type: ignore[assignment]

# Clients and streams: what they were not before, they are not now.
client: AsyncOpenAI = monitor(OpenAI())  # type: ignore[assignment]
resource = monitor(OpenAI()).no_such_resource  # type: ignore[attr-defined]
words: Iterator[int] = monitor(iter("ab"))  # type: ignore[arg-type]

# Settings: wrong kinds, wrong names, hooks of the wrong kind.
monitor(OpenAI(), freeze_after_s="5")  # type: ignore[call-overload]
monitor(OpenAI(), freeze_after=5)  # type: ignore[call-overload]
monitor(OpenAI(), 5)  # type: ignore[call-overload]
monitor(OpenAI(), on_end=on_freeze)  # type: ignore[arg-type]
monitor(OpenAI(), on_freeze=on_end)  # type: ignore[arg-type]
monitor(OpenAI(), attributes=["team"])  # type: ignore[call-overload]
monitor(OpenAI(), journal=3)  # type: ignore[call-overload]
monitor(OpenAI(), include_usage="yes")  # type: ignore[call-overload]
instrument(OpenAI())  # type: ignore[call-arg,arg-type]
instrument(on_end=on_freeze)  # type: ignore[arg-type]
setup(prometheus="9464")  # type: ignore[arg-type]
setup(0)  # type: ignore[call-arg,arg-type]

# Values are frozen, and have the fields that they have.
streams()[0].chunks = 3  # type: ignore[misc]
words_said = streams()[0].text  # type: ignore[attr-defined]
outcome = Outcome.FINE  # type: ignore[attr-defined]


def change(record: StreamRecord, freeze: Freeze) -> None:
    """Neither a record nor a freeze can be changed."""
    record.outcome = Outcome.ERROR  # type: ignore[misc]
    prompt = record.prompt  # type: ignore[attr-defined]
    freeze.gap_s = 3.0  # type: ignore[misc]
    longest: float = record.max_gap_s  # type: ignore[assignment]
    del prompt, longest


# What is read, and tests of one's own.
read("streams.db", since="yesterday")  # type: ignore[arg-type]
read_records(3)  # type: ignore[arg-type]
scripted([("now", "a")], ManualClock())  # type: ignore[list-item]
scripted([(0.1, b"a")], ManualClock())  # type: ignore[list-item]
collect(clock=3.0)  # type: ignore[arg-type]
