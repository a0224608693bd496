"""Exactly-once delivery to a topic: by the nodes themselves, or by a last operator behind a DataFrame of results."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import BinaryType, BooleanType, DataType, IntegralType, StringType

from balajoin.checkpoints.files import Folder
from balajoin.config.models import JoinSettings, Kafka, Output
from balajoin.core.spec import ColumnKind, JoinType, ResultFormat, Target
from balajoin.edge.batch_time import batch_time
from balajoin.edge.intake import Typed
from balajoin.edge.output import to_records
from balajoin.errors import ConfigError, Problem
from balajoin.kafka import clients, topics
from balajoin.kafka.client_options import librdkafka_options
from balajoin.sinks.commit_topic import last_marker
from balajoin.sinks.marker import deciding
from balajoin.sinks.node_sink import NodeSink
from balajoin.sinks.transaction import take_over
from balajoin.sinks.values import value_columns
from balajoin.sinks.writer import PLANNED, WRITTEN, Writer
from balajoin.spark.partitions import SHUFFLE_PARTITIONS, require_setting


def write_exactly_once(
    joined: DataFrame, *, kafka: Kafka, output: Output, settings: JoinSettings, checkpoint: str
) -> DataStreamWriter:
    """Writes results of `balajoin.join` to `output.topic`. Consumers of committed records see each result once.

    Returns Spark's writer: give it a `processingTime` trigger and start it. Operators between the join and this writer
    may only look at one row at a time (select, filter, …): a repeated batch must find every row on the same node.
    """
    require_setting(joined.sparkSession.conf.get(SHUFFLE_PARTITIONS), settings.nodes)
    delivery = Delivery.prepare(
        joined.sparkSession, kafka=kafka, output=output, settings=settings, checkpoint=checkpoint
    )
    return delivery.writer(delivery.through_spark(joined))


@dataclass(frozen=True)
class Delivery:
    """Exactly-once delivery to one topic. `settings` are those that a marker names."""

    output: Output
    target: Target
    settings: Mapping[str, str]
    checkpoint: str

    @classmethod
    def prepare(
        cls, spark: SparkSession, *, kafka: Kafka, output: Output, settings: JoinSettings, checkpoint: str
    ) -> "Delivery":
        """Refuses an output that cannot be exactly once, and a batch that was cut short under other settings."""
        if output.commit_topic is None:
            raise ConfigError([Problem("output.delivery", "is not exactly-once", 'delivery = "exactly-once"')])
        counts = topics.partition_counts(kafka, [output.commit_topic])
        problem = commit_topic_problem(output.commit_topic, counts[output.commit_topic], settings.nodes)
        if problem:
            raise ConfigError([problem])
        target = Target(output.topic, output.commit_topic, clients.pairs(librdkafka_options(kafka)))
        delivery = cls(output, target, deciding(settings), checkpoint)
        delivery._require_settings_of_unfinished_batch(Folder(spark, checkpoint), settings.nodes)
        return delivery

    def node_sink(self, type_: JoinType, probe: Typed, build: Typed, spark: SparkSession) -> NodeSink | None:
        """The sink with which nodes write their own results; None if only Spark can make the output's value."""
        columns = {"key": probe.key, "probe_value": probe.value, "build_value": build.value}
        made = _format(self.output, type_, columns, spark.conf.get("spark.sql.session.timeZone") or "")
        return None if made is None else NodeSink(self.target, self.settings, made)

    def through_spark(self, joined: DataFrame) -> DataFrame:
        """Writes the results of a DataFrame. Returns one row for each result, for Spark to count."""
        records = to_records(joined, self.output).withColumn(PLANNED, batch_time())
        return records.mapInArrow(Writer(self.target, self.settings).as_function(), WRITTEN)

    def writer(self, written: DataFrame) -> DataStreamWriter:
        """Nothing runs after the sink."""
        return written.writeStream.format("noop").option("checkpointLocation", self.checkpoint)

    def _require_settings_of_unfinished_batch(self, folder: Folder, nodes: int) -> None:
        """A batch that was cut short after only some nodes had written their results must go on with the same settings.

        Takes over every node's transactional id first, so that no earlier task can still write.
        """
        begun, finished = folder.numbers("offsets")[-1:], folder.numbers("commits")[-1:]
        if begun == finished:
            return
        query = json.loads(folder.read("metadata"))["id"]
        for node in range(nodes):
            take_over(self.target, query, node)
        for node in range(nodes):
            marker = last_marker(self.target, query, node)
            if marker is not None and [marker.batch] == begun:
                marker.require_settings(self.settings)


def commit_topic_problem(topic: str, partitions: int, nodes: int) -> Problem | None:
    if partitions >= nodes:
        return None
    hint = f"each node needs one: kafka-topics.sh --alter --topic {topic} --partitions {nodes}"
    return Problem("output.commit_topic", f"{topic} has {partitions} partitions for {nodes} nodes", hint)


def _format(output: Output, type_: JoinType, columns: Mapping[str, DataType], time_zone: str) -> ResultFormat | None:
    """None if only Spark can make the value: an expression, a key of another type, or times in another zone than UTC.

    `columns` are the types of key, probe_value and build_value.
    """
    whole_columns = value_columns(output.value, type_)
    kinds = {name: _kind(column) for name, column in columns.items()}
    known = {name: kind for name, kind in kinds.items() if kind is not None}
    if whole_columns is None or len(known) < len(kinds) or (not whole_columns and time_zone != "UTC"):
        return None
    return ResultFormat(type_, known, whole_columns, with_id=output.id == "header")


def _kind(type_: DataType) -> ColumnKind | None:
    if isinstance(type_, BinaryType):
        return "binary"
    if isinstance(type_, StringType):
        return "text"
    return "literal" if isinstance(type_, IntegralType | BooleanType) else None
