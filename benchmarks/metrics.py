"""The cost of metrics: the same join with and without them, in turns, with a scrape every second.

Run with `make bench`. It prints two figures. Rows per second, with and without, show the noise of the machine more than
the metrics. The CPU time of the driver's Python process, which adds metrics up and serves them, is given as a share of
all CPU time that the run could have used. Operators count in both cases.
"""

import argparse
import os
import statistics
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from bench import PARTITIONS, checkpoint, create_topics, kafka, machine, preload, session
from contenders import NODES, VALUE, settings
from pyspark.sql import SparkSession
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from balajoin import Kafka, Stream, query
from balajoin.config.models import Output
from balajoin.edge import output
from balajoin.kafka import client_options
from balajoin.observe.metrics import Address, Exporter, JoinMetrics, follow
from balajoin.observe.metrics.exporter import executors

_SPAN_MS = 600_000
_SCRAPE_EVERY_S = 1.0


@dataclass(frozen=True)
class MeteredRun:
    seconds: float
    driver_cpu_s: float


def main() -> None:
    options = _options()
    rows = options.probe + options.build
    runs: dict[bool, list[MeteredRun]] = {True: [], False: []}
    console = Console(width=110)
    with kafka() as servers, session() as spark, Progress(console=console, transient=True) as progress:
        create_topics(servers, "probe", "build", "out", "dead", "late", "control", "replicas")
        preload(servers, "build", options.build, options.build, None, _SPAN_MS, seed=0)
        preload(servers, "probe", options.probe, options.build, 1.25, _SPAN_MS, seed=1)
        task = progress.add_task("measuring", total=2 * (options.rounds + 1))
        for round_ in range(options.rounds + 1):
            for watched in (True, False) if round_ % 2 else (False, True):
                run = _measure(spark, servers, options.rows_per_batch, watched)
                if round_:  # the first round warms up
                    runs[watched].append(run)
                progress.advance(task)
    console.print(_table(runs, rows))
    with_, without = (statistics.median(run.driver_cpu_s for run in runs[watched]) for watched in (True, False))
    seconds = statistics.median(run.seconds for run in runs[True])
    cost = (with_ - without) / (seconds * (os.cpu_count() or 1))
    console.print(f"metrics take {with_ - without:.3f} s of {seconds:.1f} s on {os.cpu_count()} cores: {cost:.2%}")
    console.print(f"{rows:,} rows, {NODES} nodes, {PARTITIONS} sources, a scrape a second; {machine()}")


def _measure(spark: SparkSession, servers: Kafka, rows_per_batch: int, watched: bool) -> MeteredRun:
    given = settings(rows_per_batch)
    probe, build = Stream(topic="probe"), Stream(topic="build")
    with checkpoint() as folder, ExitStack() as watching:
        joined = query.join(spark, probe, build, kafka=servers, settings=given, cache_dir=str(folder / "cache"))
        began, cpu = time.perf_counter(), time.process_time()
        running = (
            output.to_kafka_columns(joined, Output(topic="out", value=VALUE, id="header"))
            .writeStream.format("kafka")
            .options(**client_options.spark_writer_options(servers))
            .option("topic", "out")
            .option("checkpointLocation", str(folder / "checkpoint"))
            .start()
        )
        if watched:
            metrics = JoinMetrics("bench", probe, build, given, executors)
            exporter = watching.enter_context(Exporter(Address("127.0.0.1", 0), [metrics]))
            watching.enter_context(_scraped(exporter.url))
            watching.enter_context(follow(running, metrics))
        running.processAllAvailable()
        run = MeteredRun(time.perf_counter() - began, time.process_time() - cpu)
        running.stop()
    return run


@contextmanager
def _scraped(url: str) -> Iterator[None]:
    """Scrapes in this process, so the scraper's own CPU time counts as a cost of metrics."""
    ending = threading.Event()

    def scrape() -> None:
        while not ending.wait(_SCRAPE_EVERY_S):
            with urllib.request.urlopen(url, timeout=10) as answer:
                answer.read()

    thread = threading.Thread(target=scrape, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ending.set()
        thread.join()


def _table(runs: dict[bool, list[MeteredRun]], rows: int) -> Table:
    table = Table(title="Zipf(1.25) keys", title_justify="left")
    for column in ("", "rows/s", "seconds", "from - to", "driver's CPU seconds"):
        table.add_column(column, justify="right" if column else "left")
    for watched, same in runs.items():
        seconds = [run.seconds for run in same]
        median = statistics.median(seconds)
        table.add_row(
            "with metrics" if watched else "without",
            f"{rows / median:,.0f}",
            f"{median:.2f}",
            f"{min(seconds):.2f} - {max(seconds):.2f}",
            f"{statistics.median(run.driver_cpu_s for run in same):.3f}",
        )
    return table


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--probe", type=int, default=1_000_000)
    parser.add_argument("--build", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows-per-batch", type=int, default=100_000, help="rows of each topic in a batch")
    return parser.parse_args()


if __name__ == "__main__":
    main()
