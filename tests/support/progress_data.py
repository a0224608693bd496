"""Progress reports of batches in Spark's format, for tests without Spark."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import Row

from balajoin.compute.statistics import NodeStatistics
from balajoin.core.sides import Side
from balajoin.observe.observed import NODES, PACKED, SOURCES
from balajoin.routing.statistics import SourceStatistics


def read(topic: str, start: Mapping[int, int] | None, end: Mapping[int, int], **more: Any) -> dict[str, Any]:
    """One source of a progress report. `more` may hold `latest` offsets, and `rows` as Spark counts them."""

    def written(offsets: Mapping[int, int] | None) -> str | None:
        return None if offsets is None else json.dumps({topic: offsets})

    return {
        "description": f"KafkaV2[Subscribe[{topic}]]",
        "startOffset": written(start),
        "endOffset": written(end),
        "latestOffset": written(more.get("latest", end)),
        "numInputRows": more.get("rows", 0),
    }


def ended(
    batch: int,
    second: int = 0,
    *,
    inputs: Sequence[dict[str, Any]] = (),
    entered: Mapping[Side, tuple[int | None, int | None]] | None = None,
    rows: Sequence[int] = (),
    probe_bytes: int | None = 0,
    build_bytes: int | None = 0,
    sources: Sequence[SourceStatistics | None] = (),
    nodes: Sequence[NodeStatistics | None] = (),
    durations_ms: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    """`entered` holds the rows and the dead letters of each stream."""
    told: dict[str, Any] = {f"rows_{node}": count for node, count in enumerate(rows)}
    told.update(probe_bytes=probe_bytes, build_bytes=build_bytes)
    told.update({f"source_{at}": source and source.to_json() for at, source in enumerate(sources)})
    done = {f"node_{at}": node and node.to_json() for at, node in enumerate(nodes)}
    return {
        "id": "a-checkpoint",
        "runId": "a-start",
        "name": "a-join",
        "batchId": batch,
        "timestamp": f"2026-01-01T00:00:{second:02}.000Z",
        "numInputRows": sum(source["numInputRows"] for source in inputs),
        "durationMs": durations_ms or {"addBatch": 90, "triggerExecution": 100},
        "sink": {"numOutputRows": -1},
        "sources": list(inputs),
        "observedMetrics": {
            **{PACKED[side]: Row(rows=alive, dead=dead) for side, (alive, dead) in (entered or {}).items()},
            SOURCES: Row(**told),
            **({NODES: Row(**done)} if done else {}),
        },
    }


class FakeQuery:
    def __init__(self) -> None:
        self.recentProgress: list[dict[str, Any]] = []

    @property
    def lastProgress(self) -> dict[str, Any] | None:  # noqa: N802
        return self.recentProgress[-1] if self.recentProgress else None

    def exception(self) -> None:
        return None
