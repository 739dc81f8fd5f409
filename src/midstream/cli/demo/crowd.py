"""The users' processes: started once, asked to play each act, gone when the demo is."""

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
from midstream.cli.demo.client import ClientFailed, Froze, Job, Ready, Thawed, Told, user
from midstream.cli.demo.story import ANSWERS, LIMIT, MODEL, PROMPT_TOKENS, Act
from midstream.cli.demo.user import StreamRow, User

PATIENCE_S = 5.0
LEAD_S = 0.2
"""From the moment that all clients are connected to the first call."""

Say: TypeAlias = Callable[[str], object]
"""Gets a line for each thing that happens, when it happens."""


@dataclass(frozen=True, slots=True)
class Members:
    """The processes, and the demo's ends of their lines."""

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
            for number in range(1, len(ANSWERS) + 1):
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
            started.join(PATIENCE_S)  # what a journal still waits for is written at the end of its process
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


class Load:
    """One act's load, followed with what midstream gives to everyone: its hooks, its list of open streams."""

    def __init__(self, act: Act, say: Say, journal: Path | None = None) -> None:
        self.act = act
        self._journal = journal
        self.lasts_s = act.lasts_s
        self.users = [User(number, act.freeze_after_s) for number in range(1, len(ANSWERS) + 1)]
        self._say = say
        self._began_at: float | None = None

    @property
    def elapsed_s(self) -> float:
        """How long the users have been at it."""
        return 0.0 if self._began_at is None else max(0.0, time.time() - self._began_at)

    @property
    def records(self) -> list[StreamRecord]:
        """The records so far."""
        return [user.record for user in self.users if user.record is not None]

    def rows(self) -> list[StreamRow]:
        """Return how every stream stands now."""
        return [each.row() for each in self.users]

    def run(self, members: Members, base_url: str) -> None:
        """Let every user ask, and read what they tell until all have their record. Raises CliError if one fails."""
        for line, tokens in zip(members.lines, ANSWERS, strict=True):
            line.send(
                Job(base_url, MODEL, PROMPT_TOKENS, tokens, LIMIT, self.act.freeze_after_s, self._journal)
            )
        ready = 0
        for _, told in self._listen(members):
            ready += isinstance(told, Ready)
            if ready == len(self.users):
                break
        self._began_at = time.time() + LEAD_S
        for number, line in enumerate(members.lines):
            self.users[number].began_at = self._began_at
            line.send(self._began_at + number * self.act.stagger_s)
        for each, told in self._listen(members):
            self._take(each, told)
            if len(self.records) == len(self.users):
                break
        if not all(record.outcome == Outcome.COMPLETED for record in self.records):
            raise CliError("the demo's own server failed in the middle; run it again")

    def _listen(self, members: Members) -> Iterator[tuple[User, Told]]:
        whose = dict(zip(members.lines, self.users, strict=True))
        while True:
            for line in cast("list[Connection]", wait(members.lines)):
                told: Told | None = None
                with suppress(EOFError, OSError):
                    told = line.recv()
                if told is None or isinstance(told, ClientFailed):
                    why = f" ({told.error})" if told is not None else ""
                    raise CliError(f"one of the demo's users failed in the middle{why}; run it again")
                yield whose[line], told

    def _take(self, each: User, told: Told) -> None:
        if isinstance(told, OpenStream):
            each.stands(told)
        elif isinstance(told, Froze):
            if told.freeze.hidden:  # told afterwards, and counted apart
                self._tell(
                    f"stream {each.number} was silent for {told.freeze.gap_s:.2f} s while its client was busy"
                )
            else:
                self._tell(f"stream {each.number} froze: silent for {told.freeze.gap_s:.2f} s so far")
        elif isinstance(told, Thawed):
            each.thawed(told.freeze)
            self._tell(f"stream {each.number} goes on after {told.freeze.gap_s:.2f} s of silence")
        elif isinstance(told, StreamRecord):
            each.record = told
            self._tell(f"stream {each.number} ended: {told.outcome} after {told.duration_s:.2f} s")

    def _tell(self, what: str) -> None:
        self._say(f"{self.elapsed_s:6.2f} s  {what}")
