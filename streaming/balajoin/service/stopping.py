"""Handles SIGTERM and Ctrl-C: the running batch is finished, then the query ends."""

import signal
import threading
import time
from types import FrameType, TracebackType
from typing import Any, Self

from pyspark import SparkContext
from pyspark.sql.streaming.query import StreamingQuery

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_POLL_S = 0.05
_LOOK_S = 0.002
_RUNNING = "withNewExecutionId"
"""Within this method of Spark a batch runs that has been planned."""


class Interrupted(BaseException):
    """A signal that came while no batch had to be finished. It is no `Exception`, so that no library swallows it."""


class StopRequests:
    """Counts signals. Before `wait_for_batches` the first signal interrupts; afterwards the service reads `count`."""

    def __init__(self) -> None:
        self.count = 0
        self._interrupts = True
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        # Only the main thread can set handlers; in another thread the caller's program decides when to stop.
        if threading.current_thread() is threading.main_thread():
            self._previous = {number: signal.getsignal(number) for number in _SIGNALS}
            self._install()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def wait_for_batches(self) -> None:
        """Call it once Spark runs. It replaces Spark's own handler, which cancels all jobs on Ctrl-C."""
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
        if self.count > 1:  # a third signal ends the process, and the JVM with it
            signal.signal(number, signal.SIG_DFL)


def finish_batch_and_stop(query: StreamingQuery, requests: StopRequests) -> bool:
    """Returns False if a second request cut the batch short; the next start then repeats the batch.

    `query.stop()` alone would interrupt the batch, and if we waited for its end, the next batch could begin. So the
    query is first told that this batch is the last, as Spark does at the end of `availableNow`.
    """
    execution = query._jsq.streamingQuery()
    thread = execution.queryExecutionThread()
    told = False
    while thread.isAlive() and not (told and _waits(thread)):
        if requests.count > 1:
            query.stop()
            return False
        told = told or _tell_to_end(execution, thread)
        time.sleep(_POLL_S if told else _LOOK_S)
    query.stop()
    return True


def _tell_to_end(execution: Any, thread: Any) -> bool:
    """Tells the query to begin no other batch, unless it plans one just now: Spark would cut that one short.

    A query that runs a batch cannot plan the next while we hold its lock. One that waits could begin to, but not get
    far: it is then told to go on.
    """
    lock = execution.awaitProgressLock()
    if not lock.tryLock():
        return False
    try:
        runs = _RUNNING in _stack(thread)
        if not runs and not _waits(thread):
            return False
        before = execution.state().get()
        execution.state().set(_terminated())
        if runs or _waits(thread) or not thread.isAlive():
            return True
        execution.state().set(before)
        return False
    finally:
        lock.unlock()


def _waits(thread: Any) -> bool:
    """Whether the query waits for its next trigger, or before it looks for rows again."""
    stack = _stack(thread)
    return "waitTillTime" in stack or stack[:2] == ["sleep", "executeOneBatch"]


def _stack(thread: Any) -> list[str]:
    """The methods that the thread is in, the innermost first.

    On a busy machine the query's status tells of a batch long after it has begun.
    """
    return [frame.getMethodName() for frame in thread.getStackTrace()]


def _terminated() -> Any:
    assert SparkContext._jvm is not None
    states = "org.apache.spark.sql.execution.streaming.runtime"
    return getattr(getattr(SparkContext._jvm, f"{states}.TERMINATED$"), "MODULE$")
