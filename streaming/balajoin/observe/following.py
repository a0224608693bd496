"""Reports the batches of a running query to listeners as they end."""

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Protocol, runtime_checkable

from balajoin.observe.report import BatchReport

_logger = logging.getLogger(__name__)
_POLL_S = 0.2


class Query(Protocol):
    @property
    def lastProgress(self) -> Any: ...  # noqa: N802
    @property
    def recentProgress(self) -> Any: ...  # noqa: N802


Listener = Callable[[BatchReport], None]


@runtime_checkable
class Idles(Protocol):
    """A listener that is also called while the query finds no rows, to know that it still runs."""

    def idle(self, at: datetime) -> None: ...


class Reports:
    """Reports each batch of a running query once, if it is asked before Spark forgets the batch."""

    def __init__(self, query: Query) -> None:
        self._query = query
        self._last_batch = -1
        self._last_seen: str | None = None

    def new(self) -> list[BatchReport]:
        """Returns the reports of the batches that ended since the last call."""
        last = self._query.lastProgress
        if last is None or last["timestamp"] == self._last_seen:  # fetching `recentProgress` takes longer
            return []
        self._last_seen = last["timestamp"]
        reports = [BatchReport.of(progress) for progress in self._query.recentProgress if self._is_new(progress)]
        if reports:
            self._last_batch = reports[-1].batch
        return reports

    def tell(self, listeners: Iterable[Listener]) -> None:
        """Notifies every listener of the batches that ended since the last call."""
        seen = self._last_seen
        reports = self.new()
        for listener in listeners:
            for report in reports:
                listener(report)
            if isinstance(listener, Idles) and not reports and self._last_seen not in (None, seen):
                listener.idle(datetime.fromisoformat(self._last_seen))

    def _is_new(self, progress: Mapping[str, Any]) -> bool:
        """An idle query reports progress too, under the number of the next batch."""
        return progress["batchId"] > self._last_batch and "addBatch" in progress["durationMs"]


@contextmanager
def follow(query: Query, *listeners: Listener) -> Iterator[None]:
    """Within the block, a thread notifies the listeners of every batch, at its end also of the last ones."""
    reports, ending = Reports(query), threading.Event()

    def watch() -> None:
        try:
            while not ending.wait(_POLL_S):
                reports.tell(listeners)
            reports.tell(listeners)
        except Exception as error:  # the code that waits for the query gets the error itself
            _logger.warning("no reports of the query any more: %s", error)

    thread = threading.Thread(target=watch, name="balajoin-reports", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ending.set()
        thread.join()
