"""The formats that records are exported in: CSV and JSON Lines as text, Parquet as bytes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from enum import Enum
from typing import IO, Any, Final

from midstream.stream.model import StreamRecord

COLUMNS: Final = tuple(field.name for field in fields(StreamRecord))
"""The record's fields, in its own order: the columns of every format."""


class ExportFormat(str, Enum):
    """What `--format` takes."""

    CSV = "csv"
    JSONL = "jsonl"
    PARQUET = "parquet"


def write_csv(records: Iterable[StreamRecord], file: IO[str]) -> None:
    """Write a head and one line for each record. Text stands in quotes; what is not known is empty, without quotes."""
    file.write(",".join(COLUMNS) + "\n")
    for record in records:
        file.write(",".join(_cell(value) for value in _plain(record).values()) + "\n")


def write_jsonl(records: Iterable[StreamRecord], file: IO[str]) -> None:
    """Write one JSON object for each record."""
    for record in records:
        file.write(json.dumps(_plain(record), separators=(",", ":")) + "\n")


def write_parquet(records: Sequence[StreamRecord], file: IO[bytes]) -> None:
    """Write one row for each record, in groups; nested fields keep their shape."""
    import pyarrow as pa  # noqa: PLC0415 - an extra of its own
    from pyarrow import parquet  # noqa: PLC0415

    schema = _parquet_schema(pa)
    with parquet.ParquetWriter(file, schema) as writer:
        for rows in _batches(records):
            columns = {name: [row[name] for row in rows] for name in COLUMNS}
            columns["attributes"] = [list(row.items()) for row in columns["attributes"]]
            writer.write_table(pa.table(columns, schema=schema))


def _plain(record: StreamRecord) -> dict[str, Any]:
    plain = {name: getattr(record, name) for name in COLUMNS}
    plain.update(
        outcome=record.outcome.value,
        attributes=dict(record.attributes),
        finish_reasons=list(record.finish_reasons),
        freeze_spans=[asdict(span) for span in record.freeze_spans],
    )
    return plain


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    text = value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
    return '"' + text.replace('"', '""') + '"'


def _batches(records: Sequence[StreamRecord], size: int = 10_000) -> Iterator[list[dict[str, Any]]]:
    for first in range(0, len(records), size) or (0,):
        yield [_plain(record) for record in records[first : first + size]]


def _parquet_schema(pa: Any) -> Any:
    text, seconds, count, flag = pa.string(), pa.float64(), pa.int64(), pa.bool_()
    span = pa.struct(
        [
            ("at_s", seconds),
            ("length_s", seconds),
            ("phase", text),
            ("hidden", flag),
            ("shared", flag),
            ("open", flag),
        ]
    )
    nested = {
        "attributes": pa.map_(text, text),
        "finish_reasons": pa.list_(text),
        "freeze_spans": pa.list_(span),
    }
    kinds: Mapping[str, Any] = {"float": seconds, "int": count, "bool": flag}
    return pa.schema(
        [
            pa.field(
                field.name,
                nested.get(field.name) or kinds.get(str(field.type).removesuffix(" | None"), text),
                nullable=str(field.type).endswith(" | None"),
            )
            for field in fields(StreamRecord)
        ]
    )


TEXT_FORMATS: Final[Mapping[ExportFormat, Callable[[Iterable[StreamRecord], IO[str]], None]]] = {
    ExportFormat.CSV: write_csv,
    ExportFormat.JSONL: write_jsonl,
}
