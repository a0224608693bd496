"""SIGTERM and Ctrl-C as a polite request: the batch in flight is finished, then the query ends."""

import signal
import threading
import time
from types import FrameType, TracebackType
from typing import Any, Self

from pyspark import SparkContext
from pyspark.sql.streaming.query import StreamingQuery

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_POLL_S = 0.05


class Interrupted(BaseException):
    """A signal that came while nothing had to be finished. No `Exception`, so that no library swallows it."""


class StopRequests:
    """Counts signals. Before `wait_for_batches` the first one interrupts; after it, the service looks at `count`."""

    def __init__(self) -> None:
        self.count = 0
        self._interrupts = True
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        # Handlers belong to the main thread; elsewhere whoever owns that thread decides when to stop.
        if threading.current_thread() is threading.main_thread():
            self._previous = {number: signal.getsignal(number) for number in _SIGNALS}
            self._install()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def wait_for_batches(self) -> None:
        """To be called once Spark runs: it has put a handler of its own in place, which cancels all jobs on Ctrl-C."""
        self._interrupts = False
        if self._previous:
            self._install()

    def _install(self) -> None:
        for number in _SIGNALS:
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        if self._interrupts:
            raise Interrupted
        if self.count > 1:  # a third one ends the process, and the JVM with it
            signal.signal(number, signal.SIG_DFL)


def finish_batch_and_stop(query: StreamingQuery, requests: StopRequests) -> bool:
    """False if a second request cut the batch short; the next start then does it again.

    `query.stop()` alone would interrupt the batch, and waiting for its end would leave time for the next one to begin.
    So the query is first told what Spark tells it at the end of `availableNow`: that this batch is the last.
    """
    execution = query._jsq.streamingQuery()
    execution.state().set(_terminated())
    idle_looks = 0
    # Twice, since a trigger shows up as active a moment after it has begun.
    while execution.queryExecutionThread().isAlive() and idle_looks < 2:
        if requests.count > 1:
            query.stop()
            return False
        idle_looks = 0 if query.status["isTriggerActive"] else idle_looks + 1
        time.sleep(_POLL_S)
    query.stop()  # wakes it where it waits for its next trigger
    return True


def _terminated() -> Any:
    assert SparkContext._jvm is not None
    states = "org.apache.spark.sql.execution.streaming.runtime"
    return getattr(getattr(SparkContext._jvm, f"{states}.TERMINATED$"), "MODULE$")
