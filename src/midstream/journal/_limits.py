"""How large and how old a journal may become: the oldest rows go, a few at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlite3 import Connection

DAY_S = 86_400.0
ROWS_AT_ONCE = 2000
PAGES_AT_ONCE = 1000
"""Other processes get their turn between two such batches."""
ROOM = 0.95
"""What is left of a journal that had reached its limit, so that this is not done for every row."""


def trim(connection: Connection, *, oldest: float | None, max_bytes: float | None) -> bool:
    """Delete rows of calls made before `oldest` (Unix seconds) or over `max_bytes`; True if more may have to go.

    The file shrinks only if it is larger than the limit: pages that became free are used again first.
    """
    more = False
    if oldest is not None:
        more = _delete(connection, "started_at < ?", oldest, ROWS_AT_ONCE)
        connection.execute("DELETE FROM dropped WHERE at < ?", (oldest,))
    if max_bytes is not None:
        used, _ = _bytes(connection)
        if used > max_bytes:
            (rows,) = connection.execute("SELECT count(*) FROM streams").fetchone()
            surplus = int(rows * (1 - ROOM * max_bytes / used)) + 1
            more |= _delete(connection, "? > 0", 1, min(surplus, ROWS_AT_ONCE))
        more |= _shrink(connection, max_bytes)
    return more


def _bytes(connection: Connection) -> tuple[int, int]:
    """The bytes in use, and those of the whole file."""
    page, pages, free = (
        connection.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("page_size", "page_count", "freelist_count")
    )
    return (pages - free) * page, pages * page


def _delete(connection: Connection, condition: str, value: float, most: int) -> bool:
    connection.execute("BEGIN IMMEDIATE")
    gone = connection.execute(
        f"DELETE FROM streams WHERE id IN (SELECT id FROM streams WHERE {condition} "  # noqa: S608
        "ORDER BY started_at, id LIMIT ?)",
        (value, most),
    ).rowcount
    connection.execute("COMMIT")
    return gone == ROWS_AT_ONCE


def _shrink(connection: Connection, max_bytes: float) -> bool:
    used, size = _bytes(connection)
    if size <= max_bytes or used == size:
        return False
    (page,) = connection.execute("PRAGMA page_size").fetchone()
    pages = int((size - max(max_bytes, used)) // page) + 1
    # It frees one page at each step, and only a script is stepped to its end.
    connection.executescript(f"PRAGMA incremental_vacuum({min(pages, PAGES_AT_ONCE)})")
    return pages > PAGES_AT_ONCE
