"""One of the demo's joins: its query, what its batches reported, and whether it has joined everything."""

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]
from pyspark.sql import SparkSession

from balajoin.config.models import Config
from balajoin.errors import BalaJoinError
from balajoin.kafka import clients, topics
from balajoin.kafka.client_options import librdkafka_options
from balajoin.observe.following import Reports
from balajoin.observe.live.hub import KEPT_BATCHES
from balajoin.observe.live.moment import Moment
from balajoin.observe.live.picture import Join
from balajoin.observe.live.telling import Telling
from balajoin.observe.report import BatchReport
from balajoin.service.run import start

_STALLED_AFTER_S = 180.0
_BROKER_TIMEOUT_S = 2.0


class PolicyJoin:
    def __init__(self, spark: SparkSession, config: Config, listeners: Sequence[Callable[[Moment], None]] = ()) -> None:
        self.config = config
        self.query = start(spark, config)
        self.reports: list[BatchReport] = []
        self.is_drained = False
        self._new_reports = Reports(self.query)
        self._moments: list[Moment] = []
        self._tell = Telling.of(config, [self._moments.append, *listeners])
        self._heard_s = time.monotonic()
        self._consumed: dict[str, int] = {}
        shapes = topics.shapes(config)
        own = {topic: shapes[topic].partitions for topic in (config.join.control_topic, config.join.replica_topic)}
        self._published = EndOffsets(librdkafka_options(config.kafka), own)
        self._looked_after = -1  # how many batches there were when the broker was last asked

    @property
    def policy(self) -> str:
        return self.config.join.policy

    @property
    def has_begun(self) -> bool:
        return self.query.lastProgress is not None

    @property
    def view(self) -> Join | None:
        """The join for the live view; None before its first batch has ended."""
        return Join(self._moments[-KEPT_BATCHES:], self._silent_s) if self._moments else None

    def update(self) -> None:
        """Adds the batches that ended since the last call. Raises the error that ended the query."""
        failure = self.query.exception()
        if failure is not None:
            raise failure
        for report in self._new_reports.new():
            self._heard_s = time.monotonic()
            self.reports.append(report)
            self._tell(report)
            for read in report.inputs:
                self._consumed[read.topic] = sum(read.consumed.values())
        if self._silent_s > _STALLED_AFTER_S and not self.is_drained:
            raise BalaJoinError(
                f"{self.policy}: no batch ended for {_STALLED_AFTER_S:.0f} s: run it with --verbose to see why"
            )

    def forget_batches(self) -> None:
        """Leaves the batches until now, which had no rows, out of the reports."""
        self.reports.clear()

    def look_whether_drained(self, sent: Mapping[str, int]) -> None:
        """Sets `is_drained` once the query has read all rows, and all records that its own batches published.

        A batch begins only where something is unread. So where nothing is unread, no batch is under way either.
        """
        if self.is_drained or not self._has_consumed(sent) or self._looked_after == len(self.reports):
            return
        published = self._published.read()
        if published is not None:  # else the broker is asked again
            self._looked_after = len(self.reports)
            self.is_drained = self._has_consumed(published)

    @property
    def _silent_s(self) -> float:
        return time.monotonic() - self._heard_s

    def _has_consumed(self, records: Mapping[str, int]) -> bool:
        return all(self._consumed.get(topic, 0) == count for topic, count in records.items())


class EndOffsets:
    """How many records topics have had so far. `partitions` has the number of partitions of each topic."""

    def __init__(self, client_options: Mapping[str, str], partitions: Mapping[str, int]) -> None:
        self._client = clients.admin(client_options)
        self._wanted = {
            TopicPartition(topic, partition): OffsetSpec.latest()  # type: ignore[no-untyped-call]
            for topic, count in partitions.items()
            for partition in range(count)
        }

    def read(self) -> dict[str, int] | None:
        """The records of each topic; None where the broker does not answer in time."""
        counts: dict[str, int] = defaultdict(int)
        try:
            offsets = self._client.list_offsets(self._wanted, request_timeout=_BROKER_TIMEOUT_S)
            for partition, future in offsets.items():
                counts[partition.topic] += future.result(timeout=2 * _BROKER_TIMEOUT_S).offset
        except (KafkaException, TimeoutError):
            return None
        return dict(counts)
