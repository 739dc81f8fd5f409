"""Which processes belong to one service: those that its first process has forked or spawned.

Servers with workers fork them (gunicorn, `os.fork`) or spawn them with `multiprocessing` (uvicorn, hypercorn, granian).
The process at the top of such a tree is the service's root. A process that was started by a shell or an init system is
a root of its own, and so is the same program when it is started again.
"""

from __future__ import annotations

import os
import sys
from typing import NamedTuple

MAX_GENERATIONS = 8


class ProcessId(NamedTuple):
    """A process of this machine, distinct from later ones with the same number."""

    pid: int
    started: str
    """When it was started, in the kernel's own unit; empty where that is not known."""

    @property
    def is_alive(self) -> bool:
        """Whether it still runs. One that has ended and was not waited for does not."""
        return process_id(self.pid) == self


def process_id(pid: int) -> ProcessId | None:
    """The process of this number that runs now; None if there is none."""
    try:
        fields = _stat(pid)
    except OSError:
        if os.path.isdir("/proc/self"):
            return None
        return ProcessId(pid, "") if _exists(pid) else None
    return None if fields[0] in {"Z", "X"} else ProcessId(pid, fields[19])


def own_id() -> ProcessId:
    """This process."""
    pid = os.getpid()
    return process_id(pid) or ProcessId(pid, "")


def service_root() -> ProcessId:
    """The first process of the service that this process belongs to: itself, if it is no worker of another."""
    pid = os.getpid()
    for _ in range(MAX_GENERATIONS):
        parent = _spawned_by() if pid == os.getpid() else None
        if parent is None:
            parent = _forked_by(pid)
        if parent is None or process_id(parent) is None:
            break
        pid = parent
    return process_id(pid) or ProcessId(pid, "")


def pid_namespace() -> str:
    """The number of this container's process namespace; empty on systems without them."""
    try:
        return "".join(char for char in os.readlink("/proc/self/ns/pid") if char.isdigit())
    except OSError:
        return ""


def _spawned_by() -> int | None:
    """The process that started this one by `multiprocessing`, however it did."""
    process = sys.modules.get("multiprocessing.process")
    parent = None if process is None else process.parent_process()
    return None if parent is None else parent.pid


def _forked_by(pid: int) -> int | None:
    """The parent, if it has the same command line: nothing was executed since the fork."""
    try:
        parent = int(_stat(pid)[1])
        own, other = (_command_line(each) for each in (pid, parent))
    except (OSError, ValueError):
        return os.getppid() if "gunicorn.arbiter" in sys.modules and pid == os.getpid() else None
    # Servers that set titles name themselves before a colon: "gunicorn: worker [app]".
    same = own == other or (b": " in own and own.partition(b": ")[0] == other.partition(b": ")[0])
    return parent if own and same else None


def _stat(pid: int) -> list[str]:
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
        # The name of the program comes second, in brackets, and may hold anything.
        return file.read().rpartition(")")[2].split()


def _command_line(pid: int) -> bytes:
    with open(f"/proc/{pid}/cmdline", "rb") as file:
        return file.read()


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
