"""Records that could not take part, dead letters and late rows, each with where it came from and why."""

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from balajoin.control.publisher import Header, Record


def _whence_and_why(topic: str, row: Mapping[str, Any], reason: str) -> list[Header]:
    return [
        ("balajoin-topic", topic.encode()),
        ("balajoin-partition", str(row["partition"]).encode()),
        ("balajoin-offset", str(row["offset"]).encode()),
        ("balajoin-reason", reason.encode()),
    ]


def dead_letters(topic: str, rows: pa.Table | pa.RecordBatch) -> Iterator[Record]:
    """The original records, with their headers, from the edge's rows that carry them."""
    for row in rows.to_pylist():
        missing = [part for part in ("key", "time") if row[part] is None]
        reason = f"the {' and the '.join(missing)} expression gave null"
        headers = [(header["key"], header["value"]) for header in row["dead_headers"] or ()]
        yield Record(row["dead_key"], row["dead_value"], [*headers, *_whence_and_why(topic, row, reason)])


def late_records(topic: str, rows: pa.Table, watermark_us: int) -> Iterator[Record]:
    for row in rows.to_pylist():
        behind_ms = -(-(watermark_us - row["time"]) // 1000)
        reason = f"late by {behind_ms} ms: rows that it matches may have expired"
        yield Record(row["key"], row["value"], _whence_and_why(topic, row, reason))
