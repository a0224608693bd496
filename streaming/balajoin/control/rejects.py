"""Dead letters and late rows as records: each has an id, the place it came from, and the reason.

A repeated batch publishes its records again, with the same ids. The side is part of an id, because a topic that is
joined with itself brings each record twice.
"""

import base64
import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from balajoin.config import durations
from balajoin.core.sides import Side
from balajoin.kafka.producer import ID_HEADER, Header, Record

AHEAD = "ahead"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_REASONS = {
    "key": "the key expression gave null, or it or the value expression failed",
    "time": "the time expression gave null or failed, or gave a time outside the years 1 to 9999",
}


def _id_whence_and_why(side: Side, topic: str, row: Mapping[str, Any], reason: str) -> list[Header]:
    return [
        (ID_HEADER, f"{side}-{topic}-{row['partition']}-{row['offset']}".encode()),
        ("balajoin-topic", topic.encode()),
        ("balajoin-partition", str(row["partition"]).encode()),
        ("balajoin-offset", str(row["offset"]).encode()),
        ("balajoin-reason", reason.encode()),
    ]


def _bytes(written: str | None) -> bytes | None:
    """Spark's JSON holds bytes in base64, and leaves out nulls."""
    return None if written is None else base64.b64decode(written)


def _header(header: Mapping[str, str]) -> Header:
    return header.get("key", ""), _bytes(header.get("value"))


def _reasons(row: Mapping[str, Any], ahead_us: int | None, max_ahead_ms: int) -> Iterator[str]:
    yield from (why for part, why in _REASONS.items() if row[part] is None)
    if ahead_us is not None:
        time = _EPOCH + timedelta(microseconds=row["time"])
        ahead, bound = (durations.format_ms(ms) for ms in (-(-ahead_us // 1000), max_ahead_ms))
        yield f"the time {time:%Y-%m-%dT%H:%M:%SZ} is {ahead} ahead of the clock; join.max_ahead allows {bound}"


def dead_letters(side: Side, topic: str, rows: pa.Table | pa.RecordBatch, max_ahead_ms: int) -> Iterator[Record]:
    """The original records, with their headers, from those rows of the edge that hold one."""
    for row in rows.to_pylist():
        original = json.loads(row["dead"])
        reason = "; ".join(_reasons(row, original.get(AHEAD), max_ahead_ms))
        headers = [_header(header) for header in original.get("headers", ())]
        key, value = (_bytes(original.get(part)) for part in ("key", "value"))
        yield Record(key, value, [*headers, *_id_whence_and_why(side, topic, row, reason)])


def count_ahead(rows: pa.Table | pa.RecordBatch) -> int:
    """The number of dead records whose time is too far in the future. Their JSON begins with `ahead`."""
    return pc.sum(pc.starts_with(rows.column("dead"), f'{{"{AHEAD}":')).as_py() or 0


def late_records(side: Side, topic: str, rows: pa.Table, watermark_us: int) -> Iterator[Record]:
    for row in rows.to_pylist():
        behind_ms = -(-(watermark_us - row["time"]) // 1000)
        reason = f"late by {behind_ms} ms: rows that it matches may have expired"
        yield Record(row["key"], row["value"], _id_whence_and_why(side, topic, row, reason))
