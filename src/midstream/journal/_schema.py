"""What the journal's tables look like, and how a journal of an older version gets there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from sqlite3 import Connection

APPLICATION_ID: Final = 0x4D645374
"""`MdSt`, in the header of every journal: `file` and SQLite's tools can tell it from other databases."""

STEPS: Final[Sequence[Sequence[str]]] = (
    (
        """\
CREATE TABLE streams (
  id INTEGER PRIMARY KEY,
  started_at REAL NOT NULL,
  operation TEXT NOT NULL,
  provider TEXT NOT NULL,
  server_address TEXT NOT NULL,
  server_port INTEGER,
  request_model TEXT NOT NULL,
  response_model TEXT,
  attributes TEXT NOT NULL,
  outcome TEXT NOT NULL,
  error_type TEXT,
  finish_reasons TEXT NOT NULL,
  duration_s REAL NOT NULL,
  waited_s REAL NOT NULL,
  held_s REAL NOT NULL,
  time_to_first_chunk_s REAL,
  time_to_first_content_s REAL,
  max_gap_s REAL,
  max_gap_at_s REAL,
  max_gap_phase TEXT,
  max_gap_open INTEGER NOT NULL,
  freezes INTEGER NOT NULL,
  frozen_s REAL NOT NULL,
  hidden INTEGER NOT NULL,
  shared INTEGER NOT NULL,
  suspected TEXT NOT NULL,
  max_interval_s REAL,
  wire_gap_s REAL,
  max_hold_s REAL,
  loop_blocked_s REAL,
  clock_jump_s REAL,
  stood_still_s REAL,
  tail_s REAL,
  chunks INTEGER NOT NULL,
  content_chunks INTEGER NOT NULL,
  input_tokens INTEGER,
  output_tokens INTEGER,
  cached_tokens INTEGER,
  reasoning_tokens INTEGER,
  usage_complete INTEGER NOT NULL,
  token_limit INTEGER,
  limit_hit INTEGER NOT NULL,
  retries INTEGER,
  buffered INTEGER NOT NULL,
  trace_id TEXT,
  span_id TEXT,
  spans TEXT NOT NULL
)""",
        "CREATE INDEX streams_by_start ON streams (started_at)",
        "CREATE TABLE dropped (at REAL NOT NULL, records INTEGER NOT NULL)",
    ),
    ("ALTER TABLE streams ADD COLUMN freeze_after_s REAL",),
    ("ALTER TABLE streams RENAME COLUMN spans TO freeze_spans",),
    ("ALTER TABLE streams ADD COLUMN response_id TEXT",),
)
"""The statements that bring a journal from each version to the next, from an empty file on. Only ever added to."""

OLD_NAMES: Final[Mapping[str, str]] = {"freeze_spans": "spans"}
"""Columns that older versions have under another name; a journal that is only read is not upgraded."""


def upgrade(connection: Connection, steps: Sequence[Sequence[str]] = STEPS) -> None:
    """Bring a journal up to the latest version, whole or not at all. Several processes may try at once."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        for step in steps[version:]:
            for statement in step:
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {max(version, len(steps))}")
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise
