"""Writes the page of `midstream report --html`."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from midstream._support.numbers import moment, plural, zone_name
from midstream.cli.common.errors import spare_databases, unwritten
from midstream.report.lanes import MOST_DRAWN
from midstream.report.sections import sections
from midstream.stream.model import StreamRecord

KINDS = ("model", "server", "operation")


def write_page(
    file: Path,
    records: Sequence[StreamRecord],
    *,
    bys: Sequence[str],
    top: int,
    halves: tuple[Sequence[StreamRecord], Sequence[StreamRecord]] | None,
    lost: Sequence[str],
) -> str:
    """Write the page and say what was written; `lost` is what the journal lost. Raises CliError if it cannot be."""
    if not file.name:
        raise unwritten(file, IsADirectoryError())
    spare_databases(file)
    from midstream.report.page import page  # noqa: PLC0415 - what draws it is an extra of its own

    first, last = records[0].started_at, records[-1].started_at
    now = time.time()
    html = page(
        f"Streams of {_days(first, last)}",
        f"{plural(len(records), 'stream')}, begun from {moment(first)} to {moment(last)}; made at {moment(now)} "
        f"({zone_name(now)}).",
        sections(records, list(dict.fromkeys([*KINDS, *bys])), top, halves=halves, lost=lost),
    )
    written = html.encode()
    # A browser that has the old page open never sees half of the new one.
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        draft.write_bytes(written)
        draft.replace(file)
    except OSError as error:
        raise unwritten(file, error) from error
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
    drawn = (
        f"; the timeline draws the {MOST_DRAWN:,} with the longest gaps" if len(records) > MOST_DRAWN else ""
    )
    return (
        f"{file}: {plural(len(records), 'stream')}, {len(written) / 1e6:.1f} MB{drawn}. It opens in any browser, "
        "without a network."
    )


def _days(first: float, last: float) -> str:
    days = [moment(at).partition(" ")[0] for at in (first, last)]
    return days[0] if days[0] == days[1] else f"{days[0]} to {days[1]}"
