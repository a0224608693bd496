"""The queries to compare: this join, Spark's own stream-stream join on both state stores, and plain pass-through.

Spark's queries are measured with Spark's defaults, and again with settings that balajoin uses itself: its Kafka client
options and its way to write checkpoints. All rows share the settings that a session cannot change later, and these are
balajoin's: the size of sorted pages, and the local file system, which Spark's own checkpoint manager uses for RocksDB's
files only.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from bench import forget_finished_queries
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from balajoin import query
from balajoin.config.models import JoinSettings, Kafka, Output, Stream
from balajoin.edge import output
from balajoin.kafka.client_options import java_options, spark_reader_options, spark_writer_options
from balajoin.routing.rule import PolicyName
from balajoin.spark.session import BASE_CONF, LOCAL_CHECKPOINT_CONF

NODES = 4
VALUE = "concat(probe_value, build_value)"
_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_STATE = "org.apache.spark.sql.execution.streaming.state"
_CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
_JOIN_FORMAT = "spark.sql.streaming.join.stateFormatVersion"
_JOIN_FORMAT_4 = "spark.sql.streaming.join.stateFormatV4.enabled"


@dataclass(frozen=True)
class Workload:
    kafka: Kafka
    probe: str
    build: str
    rows_per_batch: int | None
    """Rows of each topic in a batch; the same for every contender."""
    tuned: bool = True
    interval: str = "1 hours"
    lateness: str = "10 minutes"

    def records(self, spark: SparkSession, topic: str) -> DataFrame:
        options = spark_reader_options(self.kafka) if self.tuned else _plain_options(self.kafka)
        reader = spark.readStream.format("kafka").options(**options)
        if self.rows_per_batch:
            reader = reader.option("maxOffsetsPerTrigger", self.rows_per_batch)
        return reader.option("subscribe", topic).option("startingOffsets", "earliest").load()


def writer_options(kafka: Kafka, tuned: bool) -> dict[str, str]:
    return spark_writer_options(kafka) if tuned else _plain_options(kafka)


def _plain_options(kafka: Kafka) -> dict[str, str]:
    return {f"kafka.{name}": value for name, value in java_options(kafka).items()}


def pass_through(spark: SparkSession, load: Workload) -> DataFrame:
    both = load.records(spark, load.probe).unionAll(load.records(spark, load.build))
    return both.select("key", "value")


def settings(rows_per_batch: int | None, policy: PolicyName = "bala-join") -> JoinSettings:
    return JoinSettings(
        policy=policy,
        before="1 h",
        after="1 h",
        lateness="10 min",
        nodes=NODES,
        dead_letter_topic="dead",
        late_topic="late",
        control_topic="control",
        replica_topic="replicas",
        max_rows_per_batch=rows_per_batch,
    )


def joined(spark: SparkSession, load: Workload, cache: Path | None, policy: PolicyName) -> DataFrame:
    return query.join(
        spark,
        Stream(topic=load.probe),
        Stream(topic=load.build),
        kafka=load.kafka,
        settings=settings(load.rows_per_batch, policy),
        cache_dir=str(cache) if cache else None,
    )


def balajoin(
    spark: SparkSession, load: Workload, cache: Path | None = None, policy: PolicyName = "bala-join"
) -> DataFrame:
    """Writes the same records as Spark's join."""
    return joined(spark, load, cache, policy).select("key", F.expr(VALUE).alias("value"))


def balajoin_by_hash(spark: SparkSession, load: Workload) -> DataFrame:
    return balajoin(spark, load, policy="hash")


def balajoin_with_ids(spark: SparkSession, load: Workload) -> DataFrame:
    """Writes the id of each result into a header."""
    written = Output(topic="out", value=VALUE, id="header")
    return output.to_kafka_columns(joined(spark, load, None, "bala-join"), written)


def spark_join(spark: SparkSession, load: Workload) -> DataFrame:
    def side(topic: str, name: str) -> DataFrame:
        return (
            load.records(spark, topic)
            .select(
                F.col("key").alias(f"{name}_key"),
                F.col("value").alias(f"{name}_value"),
                F.col("timestamp").alias(f"{name}_time"),
            )
            .withWatermark(f"{name}_time", load.lateness)
        )

    spark.conf.set("spark.sql.shuffle.partitions", NODES)
    interval = f"probe_time - INTERVAL {load.interval} AND probe_time + INTERVAL {load.interval}"
    condition = f"probe_key = build_key AND build_time BETWEEN {interval}"
    joined = side(load.probe, "probe").join(side(load.build, "build"), F.expr(condition))
    return joined.select(F.col("probe_key").alias("key"), F.expr(VALUE).alias("value"))


@dataclass(frozen=True)
class Contender:
    name: str
    make: Callable[[SparkSession, Workload], DataFrame]
    conf: Mapping[str, str]
    tuned: bool

    def prepare(self, spark: SparkSession) -> None:
        """Sets the session up for this contender, and unloads the state of the one before."""
        forget_finished_queries(spark)
        for name, value in self.conf.items():
            spark.conf.set(name, value)


_SPARKS_CHECKPOINTS = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileContextBasedCheckpointFileManager"
    ),
    _CHANGELOG: "false",
    _JOIN_FORMAT: "2",
    _JOIN_FORMAT_4: "false",
}
_OUR_CHECKPOINTS = {**LOCAL_CHECKPOINT_CONF, _CHANGELOG: BASE_CONF[_CHANGELOG]}
_DEFAULT_STORE = {_PROVIDER: f"{_STATE}.HDFSBackedStateStoreProvider"}
_ROCKSDB = {_PROVIDER: f"{_STATE}.RocksDBStateStoreProvider"}
OUR_CONF = {**_ROCKSDB, **_OUR_CHECKPOINTS}
OURS = Contender("balajoin", balajoin, OUR_CONF, tuned=True)
BY_HASH = Contender("balajoin, policy hash", balajoin_by_hash, OUR_CONF, tuned=True)
WITH_IDS = Contender("balajoin, with ids", balajoin_with_ids, OUR_CONF, tuned=True)
PLAIN = (
    Contender("pass-through", pass_through, _SPARKS_CHECKPOINTS, tuned=False),
    Contender("Spark join, default store", spark_join, {**_DEFAULT_STORE, **_SPARKS_CHECKPOINTS}, tuned=False),
    Contender("Spark join, RocksDB", spark_join, {**_ROCKSDB, **_SPARKS_CHECKPOINTS}, tuned=False),
)
TUNED = tuple(
    Contender(f"{plain.name} *", plain.make, {**plain.conf, **_OUR_CHECKPOINTS}, tuned=True) for plain in PLAIN
)
# Formats of the join's state that Spark 4.2 has, but does not use by default; both need RocksDB.
NEWER_FORMATS = tuple(
    Contender(f"Spark join, RocksDB, state format {version} *", spark_join, {**TUNED[2].conf, **format_}, tuned=True)
    for version, format_ in ((3, {_JOIN_FORMAT: "3"}), (4, {_JOIN_FORMAT: "4", _JOIN_FORMAT_4: "true"}))
)
SPARK_JOINS = (*TUNED[1:], *NEWER_FORMATS)
STAR = "* with the Kafka client options and the checkpoint settings that balajoin sets for itself"
