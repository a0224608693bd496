"""Event time on a real broker: sources that lag, times in the future, partitions that are added while the join runs."""

import json
import shutil
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from confluent_kafka.admin import NewPartitions
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from balajoin import Stream
from balajoin.kafka.client_options import spark_reader_options
from balajoin.observe import observed
from balajoin.observe.log import troubles
from balajoin.observe.report import BatchReport
from kafka_data import Sent, everything, headers_of, send
from pipeline import AFTER_MS, BEFORE_MS, MINUTE, START, Pipeline

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

HOUR = 60 * MINUTE
DAY = 24 * HOUR


def spark_stream_join(running: Pipeline) -> tuple[set[tuple[Any, ...]], int]:
    """Spark's own join of the same topics, as in its guide: pairs of positions, and the number of dropped late rows."""

    def side(stream: Stream, name: str) -> DataFrame:
        return (
            running.spark.readStream.format("kafka")
            .options(**spark_reader_options(running.kafka))
            .option("subscribe", stream.topic)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", str(running.max_rows_per_batch))
            .load()
            .select(
                F.col("key").alias(f"{name}_key"),
                F.col("timestamp").alias(f"{name}_time"),
                F.col("partition").alias(f"{name}_partition"),
                F.col("offset").alias(f"{name}_offset"),
            )
            .withWatermark(f"{name}_time", running.lateness)
        )

    condition = (
        f"probe_key = build_key AND build_time >= probe_time - INTERVAL {BEFORE_MS} MILLISECOND "
        f"AND build_time <= probe_time + INTERVAL {AFTER_MS} MILLISECOND"
    )
    results = str(running.folder / "spark-results")
    query = (
        side(running.probe, "probe")
        .join(side(running.build, "build"), F.expr(condition))
        .writeStream.format("parquet")
        .option("path", results)
        .option("checkpointLocation", str(running.folder / "spark-checkpoint"))
        .start()
    )
    query.processAllAvailable()
    query.stop()
    dropped = sum(state["numRowsDroppedByWatermark"] for p in query.recentProgress for state in p["stateOperators"])
    return places(running.spark.read.parquet(results)), dropped


def places(joined: DataFrame) -> set[tuple[Any, ...]]:
    columns = [f"{side}_{column}" for side in ("probe", "build") for column in ("partition", "offset")]
    return set(map(tuple, joined.select(*columns).collect()))


def test_a_partition_that_lags_by_hours_loses_rows_in_sparks_join_and_none_here(
    pipeline: Callable[..., Pipeline],
) -> None:
    """A typical catch-up: one partition holds six hours, the other only the last of them."""
    running = pipeline(lateness="1 minute", max_rows_per_batch=120)
    for topic in (running.probe.topic, running.build.topic):
        lagging = [Sent(b"k%d" % (n % 3), b"old", START + n * MINUTE, 0) for n in range(360)]
        ahead = [Sent(b"k%d" % (n % 3), b"new", START + 5 * HOUR + n * MINUTE, 1) for n in range(60)]
        send(running.bootstrap, topic, [*lagging, *ahead])
    assert len(running.run()) >= 4
    assert running.assert_equals_batch_join() > 400
    assert everything(running.bootstrap, running.late) == []
    of_spark, dropped = spark_stream_join(running)
    assert dropped > 0
    assert of_spark < places(running.batch_join())


def test_a_time_in_the_future_is_a_dead_letter_and_expires_nothing(pipeline: Callable[..., Pipeline]) -> None:
    running = pipeline(lateness="1 min")
    today = int(time.time() * 1000)
    poison = [Sent(b"poison", b"%d" % at, at, 0) for at in (today + 2 * HOUR, today + 500 * DAY)]
    near = Sent(b"near", b"v", today + HOUR // 2, 0)
    warnings = []
    for more in (poison, [near]):
        for topic in (running.probe.topic, running.build.topic):
            send(running.bootstrap, topic, [Sent(b"k%d" % n, b"v", START, n % 2) for n in range(4)])
            send(running.bootstrap, topic, more)
        warnings.append([trouble for batch in running.run() for trouble in troubles(BatchReport.of(batch))])
    assert [len(each) for each in warnings] == [2, 0]
    assert all("rows_ahead=2" in trouble and "join.max_ahead" in trouble for trouble in warnings[0])
    found = Counter(row.key for row in running.results().select("key").collect())
    assert found == {b"near": 1, **{b"k%d" % n: 4 for n in range(4)}}
    assert everything(running.bootstrap, running.late) == []
    letters = everything(running.bootstrap, running.dead)
    assert Counter((m.key(), m.value()) for m in letters) == Counter((sent.key, sent.value) for sent in poison * 2)
    for letter in letters:
        reason = headers_of(letter)["balajoin-reason"]
        at = datetime.fromtimestamp(int(letter.value()) / 1000, UTC)
        assert reason.startswith(f"the time {at:%Y-%m-%dT%H:%M:%SZ} is ")
        assert reason.endswith("ahead of the clock; join.max_ahead allows 1 h")


def test_a_repeated_batch_judges_times_by_the_same_clock(pipeline: Callable[..., Pipeline]) -> None:
    """Otherwise a row could be a dead letter in one attempt and joined in the next. The offset log has the time."""
    running = pipeline(policy="hash")  # hash sends no signals, so there is only one batch
    today = int(time.time() * 1000)
    for topic in (running.probe.topic, running.build.topic):
        send(running.bootstrap, topic, [Sent(b"k", b"v", today, 0)])
    running.run()
    assert everything(running.bootstrap, running.dead) == []
    checkpoint = running.folder / "checkpoint"
    log = checkpoint / "offsets" / "0"
    version, metadata, *offsets = log.read_text().split("\n")
    yesterday = json.dumps({**json.loads(metadata), "batchTimestampMs": today - DAY})
    log.write_text("\n".join([version, yesterday, *offsets]))
    for done in (log.with_name(".0.crc"), checkpoint / "commits" / "0", checkpoint / "commits" / ".0.crc"):
        done.unlink(missing_ok=True)
    shutil.rmtree(running.folder / "results")  # otherwise the sink would skip the batch
    running.run()
    assert len(everything(running.bootstrap, running.dead)) == 2


def test_partitions_that_are_added_while_it_runs_are_joined_and_waited_for(
    pipeline: Callable[..., Pipeline], admin: "AdminClient"
) -> None:
    running = pipeline(lateness="1 min", idle_after="1 h", skew={"threshold": 0.1})
    both = (running.probe.topic, running.build.topic)

    def send_minutes(partitions: range, minutes: range) -> None:
        for topic in both:
            at = [(p, START + minute * MINUTE) for minute in minutes for p in partitions]
            send(running.bootstrap, topic, [Sent(b"k%d" % (n % 3), b"v", ms, p) for n, (p, ms) in enumerate(at)])

    query = running.start()
    try:
        send_minutes(range(2), range(10))
        query.processAllAvailable()
        for topic, added in admin.create_partitions([NewPartitions(topic, 4) for topic in both]).items():
            added.result(timeout=10)
            while len(admin.list_topics(topic, timeout=10).topics[topic].partitions) < 4:
                time.sleep(0.1)
        for hour in range(1, 3):  # old partitions advance by hours, new ones by minutes
            send_minutes(range(2, 4), range(9 + hour, 10 + hour))
            query.processAllAvailable()
            send_minutes(range(2), range(60 * hour, 60 * hour + 3))
            query.processAllAvailable()
    finally:
        query.stop()
    told = {name: json.loads(note) for p in query.recentProgress for name, note in sources_of(p)}
    assert {source["source"] for source in told.values()} == set(range(4))
    send_minutes(range(4), range(12, 15))
    running.run()
    assert running.assert_equals_batch_join() > 100
    assert everything(running.bootstrap, running.late) == []
    assert everything(running.bootstrap, running.dead) == []


def sources_of(progress: Any) -> list[tuple[str, str]]:
    found = observed.values(progress, observed.SOURCES)
    return [(name, note) for name, note in found.items() if name.startswith("source_")]
