"""Records that could not take part, dead letters and late rows, each with where it came from and why."""

from collections.abc import Iterator

import pyarrow as pa

from balajoin.control.publisher import Record


def reject(topic: str, partition: int, offset: int, reason: str, key: bytes | None, value: bytes | None) -> Record:
    headers = {
        "balajoin-topic": topic,
        "balajoin-partition": str(partition),
        "balajoin-offset": str(offset),
        "balajoin-reason": reason,
    }
    return Record(key, value, headers)


def dead_letters(topic: str, rows: pa.Table | pa.RecordBatch) -> Iterator[Record]:
    """From the edge's rows that carry their original record."""
    for row in rows.to_pylist():
        missing = [part for part in ("key", "time") if row[part] is None]
        reason = f"the {' and the '.join(missing)} expression gave null"
        yield reject(topic, row["partition"], row["offset"], reason, row["dead_key"], row["dead_value"])


def late_records(topic: str, rows: pa.Table, watermark_us: int) -> Iterator[Record]:
    for row in rows.to_pylist():
        behind_ms = -(-(watermark_us - row["time"]) // 1000)
        reason = f"late by {behind_ms} ms: rows that it matches may have expired"
        yield reject(topic, row["partition"], row["offset"], reason, row["key"], row["value"])
