"""What a running query tells of itself, added up."""

import json
import time
from collections import deque
from collections.abc import Collection, Mapping
from typing import Any, Protocol

from balajoin import observed
from balajoin.demo.figures import Figures
from balajoin.observed import NODES, SOURCES

_BATCHES_OF_A_RATE = 5


class Query(Protocol):
    @property
    def lastProgress(self) -> Any: ...  # noqa: N802
    @property
    def recentProgress(self) -> Any: ...  # noqa: N802


class Watch:
    """Totals over all batches, and the rates of the last few. Rows in are those of the topics `inputs`."""

    def __init__(self, query: Query, nodes: int, inputs: Collection[str]) -> None:
        self._query = query
        self._inputs = inputs
        self._last_seen = ""
        self._last_batch = -1
        self._recent = deque([(time.monotonic(), 0, 0)], maxlen=_BATCHES_OF_A_RATE + 1)
        self._all_batches_ms = 0
        self.batches = 0
        self.batch_ms = 0
        self.pairs_out = 0
        self.figures = Figures.none(nodes)
        self.consumed: dict[str, int] = {}

    def restart(self) -> None:
        """Leaves what was before out of the rates."""
        self.batches = self.batch_ms = self._all_batches_ms = 0
        self._recent.clear()
        self._recent.append((time.monotonic(), self.rows_in, self.pairs_out))

    def update(self) -> None:
        """Adds the batches that ended since the last call."""
        last = self._query.lastProgress
        if last is None or last["timestamp"] == self._last_seen:  # fetching all of them takes longer
            return
        self._last_seen = last["timestamp"]
        for progress in self._query.recentProgress:
            if progress["batchId"] > self._last_batch and _is_batch(progress):
                self._last_batch = progress["batchId"]
                self._add(progress)

    @property
    def rows_in(self) -> int:
        """A query reads topics of its own too; their records are no rows."""
        return sum(self.consumed.get(topic, 0) for topic in self._inputs)

    @property
    def usual_batch_ms(self) -> float:
        return self._all_batches_ms / self.batches if self.batches else 0.0

    def rows_per_s(self) -> tuple[float, float]:
        """In and out, over the last few batches."""
        begin_s, rows_before, pairs_before = self._recent[0]
        end_s, rows, pairs = self._recent[-1]
        span_s = end_s - begin_s or 1.0
        return (rows - rows_before) / span_s, (pairs - pairs_before) / span_s

    @property
    def silent_s(self) -> float:
        """Since the last batch ended."""
        return time.monotonic() - self._recent[-1][0]

    def has_consumed(self, sent: Mapping[str, int]) -> bool:
        return all(self.consumed.get(topic, 0) == rows for topic, rows in sent.items())

    def _add(self, progress: Any) -> None:
        self.batches += 1
        self.batch_ms = progress["durationMs"].get("triggerExecution", 0)
        self._all_batches_ms += self.batch_ms
        self.pairs_out += max(progress["sink"]["numOutputRows"] or 0, 0)
        self.figures = self.figures.with_batch(observed.values(progress, SOURCES), observed.values(progress, NODES))
        for source in progress["sources"]:
            for topic, offsets in (json.loads(source["endOffset"]) or {}).items():
                self.consumed[topic] = sum(offsets.values())
        self._recent.append((time.monotonic(), self.rows_in, self.pairs_out))


def _is_batch(progress: Any) -> bool:
    """An idle query reports now and then too, under the number of the batch that is still to come."""
    return "addBatch" in progress["durationMs"]
