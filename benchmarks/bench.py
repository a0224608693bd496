"""A broker, a Spark session and topics with known contents, for all benchmarks."""

import os
import platform
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from balajoin.config.models import Kafka
from balajoin.embedded import EmbeddedKafka, workload
from balajoin.kafka import client_options, topics
from balajoin.spark.jars import default_cache, fetch
from balajoin.spark.session import create_session

PARTITIONS = 4
START_MS = 1_750_000_000_000
VALUE = b'{"page":"/products/0123456789","user":"abcdefghijkl","n":12345}'


@contextmanager
def kafka() -> Iterator[Kafka]:
    folder = Path(tempfile.mkdtemp(prefix="balajoin-bench-"))
    try:
        with EmbeddedKafka(folder, fetch("broker", default_cache(os.environ))) as broker:
            yield Kafka(bootstrap_servers=broker.bootstrap_servers)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def session(conf: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    usual = {
        # Spark's default store keeps all its state in the heap, and fails on these loads with the default of 1 GB.
        "spark.driver.memory": "4g",
        # The default of 100 is enough for one query, but not for those of all contenders: with seven of them, Spark
        # compiled up to ten classes of a query again in every round.
        "spark.sql.codegen.cache.maxEntries": "1000",
    }
    spark = create_session(
        master="local[2,4]",
        app_name="bench",
        spark_conf={**usual, **(conf or {})},
        cache=default_cache(os.environ),
        nodes=PARTITIONS,
    )
    try:
        yield spark
    finally:
        spark.stop()


def create_topics(servers: Kafka, *names: str) -> None:
    topics.create_missing(servers, dict.fromkeys(names, topics.Shape(PARTITIONS)), 1)


def preload(servers: Kafka, topic: str, rows: int, keys: int, exponent: float | None, span_ms: int, seed: int) -> None:
    """Sends `rows` events over `span_ms` of event time. Without an exponent the keys come in turn."""
    numbers = range(rows) if exponent is None else workload.zipf_keys(rows, keys, exponent, seed).tolist()
    events = (
        workload.Event(b"k%08d" % (number % keys), START_MS + at * span_ms // rows, VALUE)
        for at, number in enumerate(numbers)
    )
    workload.produce(client_options.librdkafka_options(servers), topic, events, PARTITIONS)


@contextmanager
def checkpoint() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="balajoin-bench-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def start_to_kafka(frame: DataFrame, options: Mapping[str, str], topic: str, folder: Path) -> StreamingQuery:
    return (
        frame.writeStream.format("kafka")
        .options(**options)
        .option("topic", topic)
        .option("checkpointLocation", str(folder))
        .start()
    )


def to_kafka(frame: DataFrame, options: Mapping[str, str], topic: str, folder: Path) -> StreamingQuery:
    """Runs the query on everything in the input topics, writes to `topic`, and returns when that is done.

    Does not use `availableNow`, which also fixes the offsets of the control topics: records that batches publish there
    would not be read.
    """
    query = start_to_kafka(frame, options, topic, folder)
    query.processAllAvailable()
    query.stop()
    return query


def forget_finished_queries(spark: SparkSession) -> None:
    """Unloads the state that Spark keeps for a minute after a query's end: the next query would pay for the memory."""
    jvm: Any = spark._jvm
    getattr(jvm, "org.apache.spark.sql.execution.streaming.state.StateStore").stop()
    jvm.System.gc()


FLOW_JOIN_NOTE = (
    "flow-join hashes keys that are skewed on the build side only; the paper's Flow-Join would treat them as PRPD does"
)


def machine() -> str:
    model = next(
        (line.partition(":")[2].strip() for line in _cpu_lines() if line.startswith("model name")), platform.processor()
    )
    return f"{date.today()}, {os.cpu_count()} cores ({model or 'unknown'}), Python {platform.python_version()}"


def _cpu_lines() -> list[str]:
    try:
        return Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return []
