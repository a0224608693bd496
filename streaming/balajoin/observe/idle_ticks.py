"""Keeps time going while no records come: ticks on the control topic, as long as rows wait for a match.

Spark runs no batch without new records, and event time comes with records. So when a query with waiting rows has been
idle for a while, the driver publishes a tick. The tick starts a batch, and tells every node the time.
"""

import json
import time
from collections.abc import Iterable
from typing import Any
from weakref import WeakKeyDictionary

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener, StreamingQueryProgress

from balajoin.config.models import JoinSettings
from balajoin.control.encoding import tick_record
from balajoin.core.messages import ANY_PLAN, Stamp
from balajoin.kafka.producer import Publisher
from balajoin.observe.report import BatchReport

_IDLE_EVENTS = "spark.sql.streaming.noDataProgressEventInterval"
_LONGEST_MS, _SHORTEST_MS = 10_000, 500


def keep_time(spark: SparkSession, settings: JoinSettings, publisher: Publisher) -> None:
    """Registers ticks for the query that reads this control topic, whenever the query starts in this session."""
    interval_ms = min(_LONGEST_MS, max(_SHORTEST_MS, settings.idle_after_ms // 4))
    spark.conf.set(_IDLE_EVENTS, interval_ms)
    if spark not in _tickers:
        _tickers[spark] = Ticker()
        spark.streams.addListener(_tickers[spark])
    _tickers[spark].serve(settings.control_topic, publisher)


class Ticker(StreamingQueryListener):
    """One for all joins of a session, and never removed: nothing tells when the last query of a join has ended."""

    def __init__(self) -> None:
        self._publishers: dict[str, Publisher] = {}
        """By control topic."""
        self._waiting: dict[str, tuple[str, int]] = {}
        """The control topic and the last batch of each run of a query in which rows wait."""

    def serve(self, control_topic: str, publisher: Publisher) -> None:
        self._publishers[control_topic] = publisher

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802
        pass

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        topic = self._control_topic(event.progress.sources)
        if topic is None:
            return
        # A listener's own progress differs from that of `query.recentProgress`: offsets that are not there are "None".
        report = BatchReport.of(StreamingQueryProgress.fromJson(json.loads(event.progress.json)))
        if not report.nodes:
            return
        if any(node.waiting_rows for node in report.nodes):
            self._waiting[report.run_id] = (topic, report.batch)
        else:
            self._waiting.pop(report.run_id, None)

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        if waiting := self._waiting.get(str(event.runId)):
            topic, batch = waiting
            tick = tick_record(Stamp(str(event.id), batch, ANY_PLAN), time.time_ns() // 1_000_000)
            self._publishers[topic].publish(topic, [tick], whole=True)

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        self._waiting.pop(str(event.runId), None)

    def _control_topic(self, sources: Iterable[Any]) -> str | None:
        # By the description: progress has no offsets of a topic that holds nothing yet.
        descriptions = [source.description for source in sources]
        for topic in list(self._publishers):  # another thread may add one
            if any(f"Subscribe[{topic}]" in description for description in descriptions):
                return topic
        return None


_tickers: WeakKeyDictionary[SparkSession, Ticker] = WeakKeyDictionary()
