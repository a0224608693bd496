"""What a running query tells of itself, added up."""

import time
from collections import deque
from collections.abc import Callable, Collection, Mapping

from balajoin.demo.figures import Figures
from balajoin.observe.hot_keys import HotKeys
from balajoin.observe.report import BatchReport, Query, Reports

_BATCHES_OF_A_RATE = 5


class Watch:
    """Totals over all batches, and the rates of the last few. Rows in are those of the topics `inputs`.

    `tell` hears of every report too.
    """

    def __init__(
        self, query: Query, nodes: int, inputs: Collection[str], tell: Callable[[BatchReport], None] = lambda _: None
    ) -> None:
        self._reports = Reports(query)
        self._inputs = inputs
        self._tell = tell
        self._recent = deque([(time.monotonic(), 0, 0)], maxlen=_BATCHES_OF_A_RATE + 1)
        self._all_batches_ms = 0
        self.batches = 0
        self.batch_ms = 0
        self.pairs_out = 0
        self.figures = Figures.none(nodes)
        self.hot_keys = HotKeys()
        self.consumed: dict[str, int] = {}

    def restart(self) -> None:
        """Leaves what was before out of the rates."""
        self.batches = self.batch_ms = self._all_batches_ms = 0
        self._recent.clear()
        self._recent.append((time.monotonic(), self.rows_in, self.pairs_out))

    def update(self) -> None:
        """Adds the batches that ended since the last call."""
        for report in self._reports.new():
            self._add(report)
            self._tell(report)

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

    def _add(self, report: BatchReport) -> None:
        self.batches += 1
        self.batch_ms = report.duration_ms
        self._all_batches_ms += self.batch_ms
        self.pairs_out += report.rows_out
        self.figures = self.figures.with_batch(report)
        self.hot_keys.add(report)
        for read in report.inputs:
            self.consumed[read.topic] = sum(read.consumed.values())
        self._recent.append((time.monotonic(), self.rows_in, self.pairs_out))
