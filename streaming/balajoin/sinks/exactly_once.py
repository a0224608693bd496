"""The transactional sink as Spark runs it: the last operator writes, and what comes after it is nothing."""

import json

from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter

from balajoin.checkpoints.files import Folder
from balajoin.config.models import JoinSettings, Kafka, Output
from balajoin.edge.batch_time import batch_time
from balajoin.edge.output import to_records
from balajoin.errors import ConfigError, Problem
from balajoin.kafka import topics
from balajoin.kafka.client_options import librdkafka_options
from balajoin.sinks.marker import deciding
from balajoin.sinks.transaction import Target, take_over
from balajoin.sinks.writer import PLANNED, WRITTEN, Writer
from balajoin.spark.partitions import SHUFFLE_PARTITIONS, require_setting


def write_exactly_once(
    joined: DataFrame, *, kafka: Kafka, output: Output, settings: JoinSettings, checkpoint: str
) -> DataStreamWriter:
    """Results of `balajoin.join` to `output.topic`, each of them once for consumers that read committed records.

    Returns Spark's writer, to be given a `processingTime` trigger and started. Between the join and this there may only
    be what looks at each row by itself (select, filter, …): a repeated batch must find every row on the same node.
    """
    if output.commit_topic is None:
        raise ConfigError([Problem("output.delivery", "is not exactly-once", 'delivery = "exactly-once"')])
    require_setting(joined.sparkSession.conf.get(SHUFFLE_PARTITIONS), settings.nodes)
    counts = topics.partition_counts(kafka, [output.commit_topic])
    problem = commit_topic_problem(output.commit_topic, counts[output.commit_topic], settings.nodes)
    if problem:
        raise ConfigError([problem])
    target = Target(output.topic, output.commit_topic, tuple(sorted(librdkafka_options(kafka).items())))
    writer = Writer(target, deciding(settings))
    _require_settings_of_unfinished_batch(Folder(joined.sparkSession, checkpoint), writer, settings.nodes)
    written = to_records(joined, output).withColumn(PLANNED, batch_time()).mapInArrow(writer.as_function(), WRITTEN)
    return written.writeStream.format("noop").option("checkpointLocation", checkpoint)


def commit_topic_problem(topic: str, partitions: int, nodes: int) -> Problem | None:
    if partitions >= nodes:
        return None
    hint = f"each node has its own: kafka-topics.sh --alter --topic {topic} --partitions {nodes}"
    return Problem("output.commit_topic", f"{topic} has {partitions} partitions for {nodes} nodes", hint)


def _require_settings_of_unfinished_batch(folder: Folder, writer: Writer, nodes: int) -> None:
    """A batch that was cut short when some nodes had written their results, and others not, must go on as it began.

    Taking over every node's transactional id first makes sure that no task of that time is still at it.
    """
    begun, finished = folder.numbers("offsets")[-1:], folder.numbers("commits")[-1:]
    if begun == finished:
        return
    query = json.loads(folder.read("metadata"))["id"]
    for node in range(nodes):
        take_over(writer.target, query, node)
    for node in range(nodes):
        marker = writer.target.last_marker(query, node)
        if marker is not None and [marker.batch] == begun:
            marker.require_settings(writer.settings)
