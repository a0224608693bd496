"""One log line a batch, and a warning where the operators had reason for one."""

import json
import logging
from collections.abc import Iterator
from typing import Any

from pyspark.sql.streaming.query import StreamingQuery

from balajoin import observed
from balajoin.sides import SIDES

_logger = logging.getLogger(__name__)


class BatchLog:
    def __init__(self, query: StreamingQuery) -> None:
        self._query = query
        self._last_batch = -1
        self._last_seen: str | None = None

    def update(self) -> None:
        """Logs the batches that ended since the last call."""
        for progress in self._new():
            self._last_batch = progress["batchId"]
            _logger.info("%s", describe(progress))
            for trouble in troubles(progress):
                _logger.warning("batch=%s %s", progress["batchId"], trouble)

    def _new(self) -> Iterator[Any]:
        last = self._query.lastProgress
        if last is None or last["timestamp"] == self._last_seen:
            return
        self._last_seen = last["timestamp"]
        yield from filter(self._is_new_batch, self._query.recentProgress)

    def _is_new_batch(self, progress: Any) -> bool:
        """An idle query reports now and then too, under the number of the batch that is still to come."""
        return progress["batchId"] > self._last_batch and "addBatch" in progress["durationMs"]


def describe(progress: Any) -> str:
    rows_in, duration_ms = progress["numInputRows"], progress["durationMs"].get("triggerExecution", 0)
    rows_out = progress["sink"]["numOutputRows"]
    rows_per_second = round(rows_in * 1000 / duration_ms) if duration_ms else 0
    return (
        f"batch={progress['batchId']} rows_in={rows_in} rows_out={max(rows_out or 0, 0)} duration_ms={duration_ms} "
        f"rows_per_s={rows_per_second}"
    )


def troubles(progress: Any) -> Iterator[str]:
    for side in SIDES:
        if ahead := observed.values(progress, observed.EDGE[side]).get("rows_ahead"):
            yield (
                f"{side} rows_ahead={ahead}: dead letters, their time is past join.max_ahead; check the clock of this "
                f"machine, and {side}.time"
            )
    nodes = [json.loads(note) for note in observed.values(progress, observed.NODES).values() if note]
    if delayed := sum(node["delayed_shipments"] for node in nodes):
        yield f"delayed_shipments={delayed}: results may be missing; a batch must read all that the last one published"
    if foreign := sum(node["foreign_records"] for node in nodes):
        yield (
            f"foreign_records={foreign}: not written by this join, and skipped; see `balajoin control tail`, and who "
            "may write to its control and replica topics"
        )
