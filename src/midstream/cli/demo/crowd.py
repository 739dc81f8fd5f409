"""The users' processes: started once, used in each act, and ended with the demo."""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TypeAlias, cast

from midstream import OpenStream, Outcome, StreamRecord
from midstream.cli.common.errors import CliError
from midstream.cli.demo.client import ClientFailed, Froze, Ready, Thawed, UserEvent, UserTask, user
from midstream.cli.demo.story import ANSWERS, LIMIT, MODEL, PROMPT_TOKENS, USERS, Act
from midstream.cli.demo.user import StreamRow, User

PATIENCE_S = 5.0
LEAD_S = 0.2
"""From the moment that all clients are connected to the first call."""

Report: TypeAlias = Callable[[str], object]
"""Gets a line for each thing that happens, when it happens."""


@dataclass(frozen=True, slots=True)
class Members:
    """The processes, and the demo's ends of their pipes."""

    processes: list[BaseProcess]
    lines: list[Connection]


@contextmanager
def crowd() -> Iterator[Members]:
    """Start a process for each user; when the block ends they have ended."""
    # Where there is a fork server, the SDK is imported once, and not by every user.
    forks = "forkserver" in multiprocessing.get_all_start_methods()
    context = multiprocessing.get_context("forkserver") if forks else multiprocessing.get_context("spawn")
    if forks:
        multiprocessing.set_forkserver_preload(["midstream.cli.demo.client"])
    members = Members([], [])
    try:
        with _undisturbed():
            for number in range(1, USERS + 1):
                mine, theirs = context.Pipe()
                process = context.Process(
                    target=user, args=(theirs,), name=f"demo-user-{number}", daemon=True
                )
                process.start()
                theirs.close()
                members.processes.append(process)
                members.lines.append(mine)
        yield members
        for line in members.lines:
            line.close()
        for started in members.processes:
            started.join(PATIENCE_S)  # the rest of the journal is written at the end of its process
    finally:
        for line in members.lines:
            line.close()
        for started in members.processes:
            started.terminate()
        for started in members.processes:
            started.join(PATIENCE_S)


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Keep Ctrl-C from processes that start: it is for the demo, which then ends them in order."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


class ActLoad:
    """One act's load, followed with what midstream gives to everyone: its hooks, its list of open streams."""

    def __init__(self, act: Act, report: Report, journal: Path | None = None, run: str = "") -> None:
        self.act = act
        self._journal = journal
        self._run_name = run
        self.lasts_s = act.lasts_s
        self.users = [User(number, act.freeze_after_s) for number in range(1, USERS + 1)]
        self._report = report
        self._began_at: float | None = None
        self._base_url = ""

    @property
    def elapsed_s(self) -> float:
        """The time since the first call."""
        return 0.0 if self._began_at is None else max(0.0, time.time() - self._began_at)

    @property
    def records(self) -> list[StreamRecord]:
        """The records so far."""
        return [record for user in self.users for record in user.records]

    def rows(self) -> list[StreamRow]:
        """Return the state of every user now."""
        return [each.row() for each in self.users]

    def run(self, members: Members, base_url: str) -> None:
        """Let every user stream its answers, and follow them to their records. Raises CliError if one fails."""
        self._base_url = base_url
        for each, line in zip(self.users, members.lines, strict=True):
            line.send(self._task(each))
        ready = 0
        for _, event in self._events(members):
            ready += isinstance(event, Ready)
            if ready == len(self.users):
                break
        self._began_at = time.time() + LEAD_S
        for number, line in enumerate(members.lines):
            self.users[number].began_at = self._began_at
            line.send(self._began_at + number * self.act.stagger_s)
        lines = dict(zip(self.users, members.lines, strict=True))
        for each, event in self._events(members):
            self._take(each, event)
            if isinstance(event, Ready):
                lines[each].send(0.0)  # at once
            elif isinstance(event, StreamRecord) and len(each.records) * USERS + each.number <= len(ANSWERS):
                lines[each].send(self._task(each))
            if len(self.records) == len(ANSWERS):
                break
        if not all(record.outcome == Outcome.COMPLETED for record in self.records):
            raise CliError("the demo's own server failed in the middle; run it again")

    def _task(self, each: User) -> UserTask:
        """Return the next answer that a user requests."""
        return UserTask(
            self._base_url,
            MODEL,
            PROMPT_TOKENS,
            ANSWERS[len(each.records) * USERS + each.number - 1],
            LIMIT,
            self.act.freeze_after_s,
            self._journal,
            self._run_name,
        )

    def _events(self, members: Members) -> Iterator[tuple[User, UserEvent]]:
        whose = dict(zip(members.lines, self.users, strict=True))
        while True:
            for line in cast("list[Connection]", wait(members.lines)):
                event: UserEvent | None = None
                with suppress(EOFError, OSError):
                    event = line.recv()
                if event is None or isinstance(event, ClientFailed):
                    why = f" ({event.error})" if event is not None else ""
                    raise CliError(f"one of the demo's users failed in the middle{why}; run it again")
                yield whose[line], event

    def _take(self, each: User, event: UserEvent) -> None:
        if isinstance(event, OpenStream):
            each.update(event)
        elif isinstance(event, Froze):
            if event.freeze.hidden:  # reported afterwards, and counted apart
                self._print(
                    f"user {each.number}: a gap of {event.freeze.gap_s:.2f} s while the client was busy"
                )
            else:
                self._print(f"user {each.number}: FROZEN, no output for {event.freeze.gap_s:.2f} s so far")
        elif isinstance(event, Thawed):
            each.thawed(event.freeze)
            self._print(f"user {each.number}: goes on after a gap of {event.freeze.gap_s:.2f} s")
        elif isinstance(event, StreamRecord):
            each.ended(event)
            self._print(f"user {each.number}: {event.outcome} after {event.duration_s:.2f} s")

    def _print(self, what: str) -> None:
        self._report(f"{self.elapsed_s:6.2f} s  {what}")
