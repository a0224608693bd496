"""What stored rows cost: batch time with much and with little state, the almost empty batch, memory and disk per row.

Run with `make bench`. Batch times are Spark's own (`triggerExecution`), medians without the first batch of a start.
"""

import argparse
import statistics
import subprocess
from collections.abc import Sequence
from pathlib import Path

from bare import BARE
from bench import START_MS, VALUE, checkpoint, create_topics, kafka, machine, preload, session, to_kafka
from contenders import BY_HASH, OURS, PLAIN, Contender, Workload, balajoin
from pyspark.sql import SparkSession
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from balajoin import clients, workload
from balajoin.config import Kafka

_BATCH_ROWS = 100_000
_EMPTY = (OURS, BY_HASH, BARE, *PLAIN[1:])
_BATCHES = 6
_EMPTY_BATCHES = 30
_SPAN_MS = 600_000


def main() -> None:
    options = _options()
    console = Console(width=110)
    with kafka() as servers, session() as spark, Progress(console=console, transient=True) as progress:
        create_topics(servers, "out", "dead", "late", "control", "replicas")
        sizes = [options.rows // 10, options.rows]
        task = progress.add_task("", total=len(sizes) + len(_EMPTY))
        table = Table("stored rows", "batch of 100,000 rows", "state on disk", "local files", "workers' memory")
        times = []
        _with_state(spark, servers, sizes[0], "warm-up")  # whoever comes first would pay for the JVM's compiler
        for size in sizes:
            progress.update(task, description=f"batches on {size:,} stored rows")
            row, seconds = _with_state(spark, servers, size, str(size))
            times.append(seconds)
            table.add_row(*row)
            progress.advance(task)
        console.print(table)
        console.print(f"batch time with {sizes[1]:,} rows: {times[1] / times[0]:.2f} x that with {sizes[0]:,}")
        empty = Table("almost empty batch", "milliseconds", "until idle")
        for contender in _EMPTY:
            progress.update(task, description=f"almost empty batches: {contender.name}")
            batch, until_idle = _almost_empty(spark, servers, contender)
            empty.add_row(contender.name, f"{batch:,.0f}", f"{until_idle:,.0f}")
            progress.advance(task)
        console.print(empty)
    console.print(machine())


def _with_state(spark: SparkSession, servers: Kafka, size: int, name: str) -> tuple[tuple[str, ...], float]:
    probe, build = f"probe-{name}", f"build-{name}"
    create_topics(servers, probe, build)
    preload(servers, build, size, size, None, _SPAN_MS, seed=0)
    with checkpoint() as folder, checkpoint() as cache:

        def run(rows_per_batch: int) -> list[float]:
            load = Workload(servers, probe, build, rows_per_batch)
            query = to_kafka(balajoin(spark, load, cache), clients.spark_writer_options(servers), "out", folder)
            return [p["durationMs"]["triggerExecution"] for p in query.recentProgress if p["numInputRows"]]

        run(1_000_000)
        preload(servers, probe, _BATCH_ROWS * _BATCHES, size, 0.0, _SPAN_MS, seed=1)
        times = run(_BATCH_ROWS)
        stored = size + _BATCH_ROWS * _BATCHES
        memory = _workers_memory()
        seconds = statistics.median(times[1:]) / 1000
        return (
            f"{size:,}",
            f"{seconds:.2f} s ({min(times[1:]) / 1000:.2f} - {max(times[1:]) / 1000:.2f})",
            _per_row(_size(folder / "state"), stored),
            _per_row(_size(cache), stored),
            _per_row(memory, stored),
        ), seconds


def _almost_empty(spark: SparkSession, servers: Kafka, contender: Contender) -> tuple[float, float]:
    """A running query that gets ten rows of each stream at a time: milliseconds of a batch, and of all that they cause.

    Spark's join runs a second batch to expire state by the new watermark.
    """
    for name, value in contender.conf.items():
        spark.conf.set(name, value)
    probe, build = (f"{side}-{contender.name.replace(' ', '-').replace(',', '')}" for side in ("few", "fewer"))
    create_topics(servers, probe, build)
    with checkpoint() as folder:
        query = (
            contender.make(spark, Workload(servers, probe, build, None))
            .writeStream.format("kafka")
            .options(**clients.spark_writer_options(servers))
            .option("topic", "out")
            .option("checkpointLocation", str(folder))
            .start()
        )
        for number in range(_EMPTY_BATCHES):
            events = [workload.Event(b"k%d" % n, START_MS + number * 1000 + n, VALUE) for n in range(10)]
            for topic in (probe, build):
                workload.produce(clients.librdkafka_options(servers), topic, events, 2)
            query.processAllAvailable()
        ran = [p for p in query.recentProgress if "addBatch" in p["durationMs"]]
        query.stop()
    with_rows = [number for number, progress in enumerate(ran) if progress["numInputRows"]]
    times = [progress["durationMs"]["triggerExecution"] for progress in ran]
    warm = with_rows[len(with_rows) // 2 :]
    return statistics.median(times[number] for number in warm), sum(times[warm[0] :]) / len(warm)


def _size(folder: Path) -> int:
    return sum(file.stat().st_blocks * 512 for file in folder.rglob("*") if file.is_file())


def _workers_memory() -> int:
    """Memory of Spark's Python workers that is not a mapped file, which the page cache may drop at any time."""
    pids = subprocess.run(["pgrep", "-f", "balajoin.daemon"], capture_output=True, text=True).stdout.split()
    return sum(_anonymous_memory(Path(f"/proc/{pid}/status").read_text().splitlines()) for pid in pids)


def _anonymous_memory(status: Sequence[str]) -> int:
    return next((int(line.split()[1]) * 1024 for line in status if line.startswith("RssAnon")), 0)


def _per_row(size: int, rows: int) -> str:
    return f"{size / 1e6:,.0f} MB, {size / rows:,.0f} B/row"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000, help="the larger state; the smaller is a tenth of it")
    return parser.parse_args()


if __name__ == "__main__":
    main()
