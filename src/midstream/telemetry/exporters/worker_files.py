"""The directory in which the workers of one service leave their metrics for the one that serves them.

It is private (0700) and owned by the user of the service, and so is the directory above it. Each worker writes one
file, replaced whole; the totals of workers that have ended are added up in one more. Nothing else is kept, and what
services that have ended left behind is removed.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import stat
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from midstream._support.internal_errors import safe_log
from midstream.telemetry.exporters.process_tree import ProcessId, own_id, pid_namespace

RUNTIME_DIRECTORY = "MIDSTREAM_RUNTIME_DIR"
MAX_FILE_BYTES = 64 * 1024 * 1024
LOCK_TIMEOUT_S = 1.0
MAX_WORKERS = 1000
"""Files that are read of one service."""

_SUFFIX = ".json"
_ENDED = f"ended{_SUFFIX}"


class WorkerFiles:
    """The files of one service, found by its root process and the address that it serves metrics on."""

    def __init__(self, root: ProcessId, address: str) -> None:
        digest = hashlib.sha256(address.encode("utf-8", "replace")).hexdigest()[:12]
        self._name = ".".join((pid_namespace(), str(root.pid), root.started, digest))
        self._own = own_id()
        self._base: Path | None = None
        self._warned = False

    @property
    def directory(self) -> Path:
        """Where the files are, whether it exists or not."""
        return _base_directory() / self._name

    @property
    def mark(self) -> str:
        """An identifier of this service that reveals nothing about it."""
        return hashlib.sha256(self._name.encode()).hexdigest()[:16]

    def exist(self) -> bool:
        """Whether any worker has written so far. A process without workers never does."""
        return _is_private(self.directory)

    def forked(self) -> None:
        """Write under the name of this process from now on: it is a child of the one before."""
        self._own = own_id()

    def make(self) -> None:
        """Make the directory, if that can be done."""
        with suppress(OSError):
            self._made()

    def write(self, families: Any) -> bool:
        """Write this worker's metrics, JSON values all; False if that cannot be done, which is logged once."""
        try:
            if not self._made():
                raise PermissionError("it is not a directory of this user alone")
            self._replace(f"{self._own.pid}.{self._own.started}{_SUFFIX}", families)
        except OSError as error:
            if not self._warned:
                self._warned = True
                safe_log(
                    logging.WARNING,
                    "the workers of this service cannot share their metrics in %s (%s); set %s to a "
                    "directory of this user",
                    self.directory,
                    error.strerror or str(error),
                    RUNTIME_DIRECTORY,
                )
            return False
        return True

    def read(self) -> tuple[list[Any], list[tuple[str, Any]], dict[str, Any]]:
        """What the others wrote: those that run, those that have ended (with the names of their files), and totals.

        `totals` holds `families`, and `names`: files that are in them already and are yet to be removed.
        """
        running, ended = [], []
        totals = self._load(_ENDED)
        if not isinstance(totals, dict) or not isinstance(totals.get("names"), list):
            totals = {"names": [], "families": []}
        for name, process in self._members():
            if process == self._own or name in totals["names"]:
                continue
            families = self._load(name)
            if families is None:
                continue
            if process.is_alive:
                running.append(families)
            else:
                ended.append((name, families))
        return running, ended, totals

    @contextmanager
    def locked(self) -> Iterator[bool]:
        """Keep other workers from adding up totals meanwhile.

        Gives False if another has not let go of the lock within a second: its process may have been stopped.
        """
        import fcntl  # noqa: PLC0415 - not on every system

        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(self.directory / "lock", flags, 0o600)
        try:
            until = time.monotonic() + LOCK_TIMEOUT_S
            alone = False
            while not alone and time.monotonic() < until:
                try:
                    fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # not shared with a forked child
                    alone = True
                except OSError:  # noqa: PERF203 - it pauses between attempts
                    time.sleep(0.005)
            yield alone
        finally:
            os.close(descriptor)

    def keep_totals(self, names: Iterable[str], families: Any) -> None:
        """Replace the totals of ended workers, and then remove the files that went into them. Raises OSError."""
        names = list(names)
        # A crash between the two leaves files that the totals name, so nothing is counted twice.
        self._replace(_ENDED, {"names": names, "families": families})
        for name in names:
            with suppress(OSError):
                os.unlink(self.directory / name)

    def _members(self) -> Iterator[tuple[str, ProcessId]]:
        try:
            names = sorted(os.listdir(self.directory))[: MAX_WORKERS + 1]
        except OSError:
            return
        for name in names:
            pid, _, started = name.removesuffix(_SUFFIX).partition(".")
            if name.endswith(_SUFFIX) and pid.isdecimal():
                yield name, ProcessId(int(pid), started)

    def _made(self) -> bool:
        base = _base_directory()
        for directory in (base, self.directory):
            if _is_private(directory):
                continue
            with suppress(FileExistsError):
                os.mkdir(directory, 0o700)
                if directory != base:
                    _remove_ended(base, self._name)
            if not _is_private(directory):
                return False
        return True

    def _load(self, name: str) -> Any:
        try:
            descriptor = os.open(self.directory / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            with open(descriptor, encoding="utf-8") as file:
                return json.loads(file.read(MAX_FILE_BYTES))
        except (OSError, ValueError, RecursionError):
            return None

    def _replace(self, name: str, content: Any) -> None:
        # Never read half: another process may look at any moment.
        temporary = self.directory / f"{self._own.pid}.{self._own.started}.new"
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(temporary, flags, 0o600), "w", encoding="utf-8") as file:
            json.dump(content, file, separators=(",", ":"))
        os.replace(temporary, self.directory / name)


def _base_directory() -> Path:
    chosen = os.environ.get(RUNTIME_DIRECTORY, "").strip()
    if chosen:
        return Path(chosen)
    runtime = os.environ.get("XDG_RUNTIME_DIR", "").strip()
    if runtime and _is_private(Path(runtime)):
        return Path(runtime) / "midstream"
    return Path(tempfile.gettempdir()) / f"midstream-{os.geteuid()}"


def _is_private(directory: Path) -> bool:
    """Whether it is a directory, not a link, that only this user can enter."""
    try:
        found = os.lstat(directory)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077


def _remove_ended(base: Path, own_name: str) -> None:
    """Remove the directories of services whose processes have all ended."""
    namespace = pid_namespace()
    for name in os.listdir(base):
        parts = name.split(".")
        if name == own_name or len(parts) != 4 or parts[0] != namespace or not parts[1].isdecimal():
            continue
        directory = base / name
        with suppress(OSError):
            files = os.listdir(directory) if _is_private(directory) else [""]
            processes = [ProcessId(int(parts[1]), parts[2])]
            for file in files:
                pid, _, rest = file.partition(".")
                if pid.isdecimal():
                    processes.append(ProcessId(int(pid), rest.rpartition(".")[0]))
            if not any(process.is_alive for process in processes):
                for file in files:
                    os.unlink(directory / file)
                os.rmdir(directory)
