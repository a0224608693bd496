"""A join on a real broker that tests start and stop, and Spark's own batch join of the same topics."""

import random
from collections import Counter
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from balajoin import JoinSettings, Kafka, Stream, query
from balajoin.core.spec import KINDS, JoinType
from balajoin.edge.intake import lenient, sql
from balajoin.kafka.client_options import spark_reader_options
from balajoin.plan import JoinPlan
from kafka_data import Sent

MINUTE = 60_000
START = 1_700_000_000_000
BEFORE_MS, AFTER_MS = 5 * MINUTE, 2 * MINUTE


@dataclass
class Pipeline:
    """A join of two topics that writes to a Parquet folder. A test can start and stop it many times."""

    spark: SparkSession
    bootstrap: str
    folder: Path
    probe: Stream
    build: Stream
    dead: str
    late: str
    control: str
    replicas: str
    nodes: int = 4
    type: JoinType = "inner"
    policy: str = "bala-join"
    skew: dict[str, Any] = field(default_factory=dict)
    hash_bits: int = 64
    before: str = f"{BEFORE_MS} ms"
    after: str = f"{AFTER_MS} ms"
    lateness: str = "10 min"
    idle_after: str = "1 min"
    max_rows_per_batch: int | None = None
    place: str = "checkpoint"

    @property
    def checkpoint(self) -> str:
        return str(self.folder / self.place)

    @property
    def kafka(self) -> Kafka:
        return Kafka(bootstrap_servers=self.bootstrap)

    @property
    def cache(self) -> Path:
        return self.folder / "cache"

    @property
    def settings(self) -> JoinSettings:
        return JoinSettings(
            type=self.type,
            before=self.before,
            after=self.after,
            lateness=self.lateness,
            idle_after=self.idle_after,
            nodes=self.nodes,
            dead_letter_topic=self.dead,
            late_topic=self.late,
            control_topic=self.control,
            replica_topic=self.replicas,
            policy=self.policy,
            skew=self.skew,
            max_rows_per_batch=self.max_rows_per_batch,
        )

    def planned(self) -> JoinPlan:
        return query.plan(
            self.spark,
            self.probe,
            self.build,
            kafka=self.kafka,
            settings=self.settings,
            cache_dir=str(self.cache),
            checkpoint=self.checkpoint,
            hash_bits=self.hash_bits,
        )

    def joined(self) -> DataFrame:
        return self.planned().prepare()

    def start(self, **trigger: Any) -> StreamingQuery:
        return (
            self.joined()
            .writeStream.format("parquet")
            .option("path", str(self.folder / "results" / self.place))
            .option("checkpointLocation", self.checkpoint)
            .trigger(**(trigger or {"processingTime": "0 seconds"}))
            .start()
        )

    def run(self) -> list[Any]:
        """Starts the query once, for all records now in the topics. Returns its progress reports."""
        query = self.start()
        query.processAllAvailable()
        query.stop()
        return [progress for progress in query.recentProgress if "addBatch" in progress["durationMs"]]

    def crash_before_last_commit(self) -> None:
        """Removes the last batch from the logs of Spark and the sink, as if the driver had died before its end."""
        notes = Path(self.checkpoint) / "commits"
        last = max(int(file.name) for file in notes.iterdir() if file.name.isdigit())
        for folder in (notes, self.folder / "results" / self.place / "_spark_metadata"):
            for name in (f"{last}", f"{last}.compact"):
                (folder / name).unlink(missing_ok=True)
                (folder / f".{name}.crc").unlink(missing_ok=True)

    def run_a_batch(self) -> None:
        """Runs one batch on all records now in the topics. Records that the batch publishes stay unread."""
        self.start(availableNow=True).awaitTermination()

    def results(self) -> DataFrame:
        """The results of all checkpoints. Each has its own folder, because the sink knows batches by number."""
        parts = [self.spark.read.parquet(str(part)) for part in (self.folder / "results").iterdir()]
        return reduce(DataFrame.unionAll, parts)

    def batch_join(self) -> DataFrame:
        def side(stream: Stream, name: str) -> DataFrame:
            records = (
                self.spark.read.format("kafka")
                .options(**spark_reader_options(self.kafka))
                .option("subscribe", stream.topic)
                .option("kafka.isolation.level", stream.isolation_level)
                .load()
            )
            with lenient(self.spark):
                return records.select(
                    F.expr(sql(f"{name}.key", stream.key)).alias(f"{name}_key"),
                    F.expr(sql(f"{name}.time", stream.time)).alias(f"{name}_time"),
                    F.expr(sql(f"{name}.value", stream.value)).alias(f"{name}_value"),
                    F.col("partition").alias(f"{name}_partition"),
                    F.col("offset").alias(f"{name}_offset"),
                )

        condition = (
            f"probe_key = build_key AND build_time >= probe_time - INTERVAL {BEFORE_MS} MILLISECONDS "
            f"AND build_time <= probe_time + INTERVAL {AFTER_MS} MILLISECONDS"
        ).replace("MILLISECONDS", "MILLISECOND")
        how = f"{self.type}_outer" if self.type in ("left", "right", "full") else self.type
        return side(self.probe, "probe").join(side(self.build, "build"), F.expr(condition), how)

    def assert_equals_batch_join(self) -> int:
        """Asserts the same results, values and times, each exactly once. Returns the number of results."""
        sides = ("probe", "build") if KINDS[self.type].pairs else ("probe",)
        columns = [f"{s}_{c}" for s in sides for c in ("value", "time", "partition", "offset")]
        key = F.coalesce(*[F.col(f"{side}_key") for side in sides]).alias("key")
        found = Counter(map(tuple, self.results().select("key", *columns).collect()))
        expected = Counter(map(tuple, self.batch_join().select(key, *columns).collect()))
        assert found == expected
        assert self.results().select("id").distinct().count() == sum(expected.values())
        return sum(expected.values())


def rows(seed: int, count: int, first: int = 0, large: bool = False) -> list[Sent]:
    """Half of the rows have one key. Times are out of order, often equal, and often exactly an interval apart."""
    rng = random.Random(seed)
    keys = [b"hot"] * 6 + [b"", b"0", b"1", b"\xff\xfe", "käse".encode(), b"hot2"]
    return [
        Sent(
            rng.choice(keys),
            b"x" * (700_000 if large and n == 0 else rng.randrange(20)) if rng.random() > 0.05 else None,
            START + (first + n) * 1000 + rng.choice([0, 0, BEFORE_MS, -BEFORE_MS, AFTER_MS, -AFTER_MS, 1, -1]),
            rng.randrange(2),
        )
        for n in range(count)
    ]
