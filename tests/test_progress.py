import logging
from typing import Any

import pytest
from pyspark.sql import Row

from balajoin.compute.statistics import NodeStatistics
from balajoin.observed import NODES
from balajoin.progress import BatchLog


def ended(batch: int, second: int, rows: int = 10, **durations_ms: int) -> dict[str, Any]:
    return {
        "batchId": batch,
        "timestamp": f"2026-01-01T00:00:{second:02}.000Z",
        "numInputRows": rows,
        "durationMs": durations_ms or {"addBatch": 90, "triggerExecution": 100},
        "sink": {"numOutputRows": 7},
        "observedMetrics": {},
    }


class FakeQuery:
    def __init__(self) -> None:
        self.recentProgress: list[dict[str, Any]] = []

    @property
    def lastProgress(self) -> dict[str, Any] | None:  # noqa: N802
        return self.recentProgress[-1] if self.recentProgress else None


def test_each_batch_is_logged_once_and_idling_never(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "balajoin")
    query = FakeQuery()
    batches = BatchLog(query)  # type: ignore[arg-type]
    batches.update()
    idle = ended(2, 3, rows=0, triggerExecution=10)
    for progress in ([ended(0, 1), ended(1, 2)], [], [idle], [ended(2, 4)]):
        query.recentProgress.extend(progress)
        batches.update()
        batches.update()
    assert [record.getMessage() for record in caplog.records] == [
        f"batch={batch} rows_in=10 rows_out=7 duration_ms=100 rows_per_s=100" for batch in range(3)
    ]


def test_what_may_cost_results_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    query = FakeQuery()
    notes = [NodeStatistics(0, delayed_shipments=2), NodeStatistics(1, foreign_records=3)]
    told = Row(node_0=notes[0].to_json(), node_1=notes[1].to_json(), node_2=None)
    query.recentProgress.append({**ended(5, 1), "observedMetrics": {NODES: told}})
    BatchLog(query).update()  # type: ignore[arg-type]
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert [warning.partition(":")[0] for warning in warnings] == [
        "batch=5 delayed_shipments=2",
        "batch=5 foreign_records=3",
    ]
