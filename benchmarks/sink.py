"""The cost of exactly-once delivery: Spark's Kafka sink and the transactional one, after the join and after a copy.

All rows are in Kafka beforehand, and one batch takes them all. Then batches of a few rows show the fixed cost of a
transaction. The first round warms up and is not counted. Then the sinks take turns, back and forth, and the median
counts. Compare ratios: absolute figures depend on the machine.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import contenders
from bench import (
    PARTITIONS,
    START_MS,
    VALUE,
    checkpoint,
    create_topics,
    kafka,
    machine,
    preload,
    session,
    start_to_kafka,
)
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from rich.console import Console
from rich.table import Table

from balajoin import Kafka, Output, Stream, join, write_exactly_once
from balajoin.edge.output import to_kafka_columns
from balajoin.embedded import workload
from balajoin.kafka.client_options import librdkafka_options, spark_reader_options, spark_writer_options

OUTPUT = Output(topic="out", value=contenders.VALUE, id="header")
COPY = Output(topic="out", value="value", id="header")
SETTINGS = contenders.settings(rows_per_batch=None)
SPAN_MS = 600_000

Frame = Callable[[SparkSession, Kafka], DataFrame]
Start = Callable[[DataFrame, Kafka, Output, str], StreamingQuery]


def joined(spark: SparkSession, servers: Kafka) -> DataFrame:
    return join(spark, Stream(topic="probe"), Stream(topic="build"), kafka=servers, settings=SETTINGS)


def copied(spark: SparkSession, servers: Kafka) -> DataFrame:
    """Copies the probe topic: each of its partitions takes the place of a node."""
    return (
        spark.readStream.format("kafka")
        .options(**spark_reader_options(servers))
        .option("subscribe", "probe")
        .option("startingOffsets", "earliest")
        .load()
        .select("key", "value", F.concat_ws("-", "partition", "offset").alias("id"))
    )


def at_least_once(frame: DataFrame, servers: Kafka, output: Output, folder: str) -> StreamingQuery:
    return start_to_kafka(to_kafka_columns(frame, output), spark_writer_options(servers), output.topic, Path(folder))


def exactly_once(frame: DataFrame, servers: Kafka, output: Output, folder: str) -> StreamingQuery:
    return write_exactly_once(frame, kafka=servers, output=output, settings=SETTINGS, checkpoint=folder).start()


SINKS: dict[str, Start] = {"Spark's, at least once": at_least_once, "transactional, exactly once": exactly_once}


def main() -> None:
    options = _options()
    console = Console(width=110)
    with kafka() as servers, session() as spark:
        create_topics(servers, "probe", "build", "out", "out.commits", "dead", "late", "control", "replicas")
        preload(servers, "build", options.build, options.build, None, SPAN_MS, seed=0)
        preload(servers, "probe", options.probe, options.build, 0.0, SPAN_MS, seed=1)
        for title, make, output in (("join", joined, OUTPUT), ("copy", copied, COPY)):
            measure = _Measure(spark, servers, make, output, options.small_batches)
            console.print(_table(title, options.probe, _rounds(measure, options.rounds)))
    console.print(f"{options.probe:,} results in a batch, then {options.small_batches} of 40 rows; {machine()}")


class _Measure:
    def __init__(self, spark: SparkSession, servers: Kafka, make: Frame, output: Output, small_batches: int) -> None:
        self._spark, self._servers, self._make, self._output = spark, servers, make, output
        self._small_batches = small_batches

    def __call__(self, start: Start) -> tuple[float, float]:
        """Seconds for all rows in the topics, and milliseconds for a small batch after that."""
        with checkpoint() as folder:
            frame = self._make(self._spark, self._servers)
            began = time.perf_counter()
            query = start(frame, self._servers, self._output, str(folder))
            with _stopped_at_the_end(query):
                query.processAllAvailable()
                whole = time.perf_counter() - began
                small = [self._small_batch(query) for _ in range(self._small_batches)]
        return whole, statistics.median(small)

    def _small_batch(self, query: StreamingQuery) -> float:
        events = (workload.Event(b"k%08d" % number, START_MS + SPAN_MS, VALUE) for number in range(40))
        workload.produce(librdkafka_options(self._servers), "probe", events, PARTITIONS)
        query.processAllAvailable()
        batches = [each for each in query.recentProgress if each["numInputRows"] and "addBatch" in each["durationMs"]]
        return float(batches[-1]["durationMs"]["triggerExecution"])


@contextmanager
def _stopped_at_the_end(query: StreamingQuery) -> Iterator[None]:
    try:
        yield
    finally:
        query.stop()


def _rounds(measure: _Measure, rounds: int) -> dict[str, list[tuple[float, float]]]:
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in SINKS}
    for round_ in range(rounds + 1):
        for name in SINKS if round_ % 2 else reversed(SINKS):
            found = measure(SINKS[name])
            if round_:
                taken[name].append(found)
    return taken


def _table(title: str, rows: int, taken: dict[str, list[tuple[float, float]]]) -> Table:
    table = Table(title=title, title_justify="left")
    for column in ("sink", "rows/s", "seconds", "from - to", "of Spark's sink", "ms a small batch"):
        table.add_column(column, justify="left" if column == "sink" else "right")
    seconds = {name: [whole for whole, _ in found] for name, found in taken.items()}
    reference = statistics.median(next(iter(seconds.values())))
    for name, found in taken.items():
        median = statistics.median(seconds[name])
        table.add_row(
            name,
            f"{rows / median:,.0f}",
            f"{median:.2f}",
            f"{min(seconds[name]):.2f} - {max(seconds[name]):.2f}",
            f"{reference / median:.0%}",
            f"{statistics.median(small for _, small in found):.0f}",
        )
    return table


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--probe", type=int, default=1_000_000)
    parser.add_argument("--build", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--small-batches", type=int, default=8)
    return parser.parse_args()


if __name__ == "__main__":
    main()
