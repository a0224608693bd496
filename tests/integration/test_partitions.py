"""Node j must be on Spark's partition j. A changed number of partitions is refused at the start."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from balajoin import Output
from balajoin.errors import StateError
from balajoin.sinks.exactly_once import write_exactly_once
from balajoin.spark.failures import Place, explain, trace_of
from kafka_data import send
from pipeline import Pipeline, rows

_PARTITIONS = "spark.sql.shuffle.partitions"


@pytest.fixture(autouse=True)
def _same_partitions_afterwards(spark: SparkSession) -> Iterator[None]:
    before = spark.conf.get(_PARTITIONS)
    yield
    spark.conf.set(_PARTITIONS, before)


def _filled(running: Pipeline) -> Pipeline:
    send(running.bootstrap, running.build.topic, rows(0, 40))
    send(running.bootstrap, running.probe.topic, rows(100, 60))
    return running


def _started(joined: DataFrame, running: Pipeline) -> StreamingQuery:
    return (
        joined.writeStream.format("parquet")
        .option("path", str(running.folder / "results" / running.place))
        .option("checkpointLocation", running.checkpoint)
        .start()
    )


def _finish(query: StreamingQuery) -> None:
    query.processAllAvailable()
    query.stop()


def _refusal(query: StreamingQuery) -> str:
    with pytest.raises(StreamingQueryException) as failed:
        query.processAllAvailable()
    return str(explain(trace_of(failed.value), Place("", "", "")))


@pytest.mark.parametrize(("nodes", "others"), [(4, 3), (1, 4)])
def test_two_joins_of_one_session_are_refused_if_the_second_changes_the_nodes_of_the_first(
    pipeline: Callable[..., Pipeline], nodes: int, others: int
) -> None:
    first, second = _filled(pipeline(nodes=nodes, lateness="1 h")), _filled(pipeline(nodes=others, lateness="1 h"))
    second.place = "second"
    ours, theirs = first.joined(), second.joined()
    refusal = _refusal(_started(ours, first))
    assert f"{_PARTITIONS} is {others}, but the join was made with nodes = {nodes}" in refusal
    for remedy in ("Start each query before", "spark.newSession()", "new checkpoint location"):
        assert remedy in refusal
    _finish(_started(theirs, second))
    assert first.spark.read.parquet(str(first.folder / "results" / "second")).count() > 0


def test_joins_that_are_started_one_after_the_other_may_have_any_numbers_of_nodes(
    pipeline: Callable[..., Pipeline],
) -> None:
    first, second = _filled(pipeline(nodes=4, lateness="1 h")), pipeline(nodes=3)
    query = first.start()
    second.joined()
    _finish(query)
    assert first.assert_equals_batch_join() > 100


def test_sessions_of_their_own_keep_joins_apart(pipeline: Callable[..., Pipeline]) -> None:
    first, second = _filled(pipeline(nodes=4, lateness="1 h")), pipeline(nodes=3)
    ours = replace(first, spark=first.spark.newSession()).joined()
    replace(second, spark=second.spark.newSession()).joined()
    _finish(_started(ours, first))
    assert first.assert_equals_batch_join() > 100


def test_a_number_of_partitions_that_was_set_before_the_start_is_refused(pipeline: Callable[..., Pipeline]) -> None:
    running = _filled(pipeline(nodes=4))
    joined = running.joined()
    running.spark.conf.set(_PARTITIONS, 7)
    assert f"{_PARTITIONS} is 7, but the join was made with nodes = 4" in _refusal(_started(joined, running))


def test_exactly_once_refuses_it_before_the_query_starts(
    pipeline: Callable[..., Pipeline], make_topic: Callable[..., str]
) -> None:
    running = pipeline(nodes=4)
    joined = running.joined()
    running.spark.conf.set(_PARTITIONS, 7)
    output = Output(topic=make_topic("out"), commit_topic=make_topic("commits", 4))
    with pytest.raises(StateError, match=f"{_PARTITIONS} is 7, but the join was made with nodes = 4"):
        write_exactly_once(
            joined, kafka=running.kafka, output=output, settings=running.settings, checkpoint=running.checkpoint
        )


def test_a_checkpoint_keeps_its_own_number_when_it_is_started_again(pipeline: Callable[..., Pipeline]) -> None:
    running = _filled(pipeline(nodes=4, lateness="1 h"))
    running.run()
    joined = running.joined()
    running.spark.conf.set(_PARTITIONS, 7)
    send(running.bootstrap, running.probe.topic, rows(200, 60, first=60))
    _finish(_started(joined, running))
    assert running.assert_equals_batch_join() > 100


def test_a_join_may_stand_behind_another_stream_in_a_union(pipeline: Callable[..., Pipeline]) -> None:
    """In a union Spark's tasks have other numbers than the partitions of the nodes."""
    running = _filled(pipeline(nodes=4, lateness="1 h"))
    joined = running.joined()
    ticks = running.spark.readStream.format("rate").option("rowsPerSecond", 1).option("numPartitions", 3).load()
    nulls = [F.lit(None).cast(column.dataType).alias(column.name) for column in joined.schema]
    _finish(_started(ticks.select(*nulls).unionAll(joined).filter("id is not null"), running))
    assert running.assert_equals_batch_join() > 100


def test_a_batch_may_be_written_with_any_number_of_partitions(pipeline: Callable[..., Pipeline]) -> None:
    running = _filled(pipeline(nodes=4, lateness="1 h", max_rows_per_batch=30))

    def write(batch: DataFrame, number: int) -> None:
        batch.sparkSession.conf.set(_PARTITIONS, 7)
        batch.repartition("key").write.mode("append").parquet(str(running.folder / "results" / running.place))

    writer: Any = running.joined().writeStream.foreachBatch(write)
    _finish(writer.option("checkpointLocation", running.checkpoint).start())
    assert running.assert_equals_batch_join() > 100
