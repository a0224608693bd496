"""The cost of stored rows: batch time with much and with little state, and memory and disk per row.

Run with `make bench`. Batch times are medians of Spark's own (`triggerExecution`), without the first batch of a start.
"""

import argparse
import statistics
import subprocess
from collections.abc import Sequence
from pathlib import Path

from bench import checkpoint, create_topics, kafka, machine, preload, session, to_kafka
from contenders import Workload, balajoin
from pyspark.sql import SparkSession
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from balajoin.config.models import Kafka
from balajoin.kafka import client_options

_BATCH_ROWS = 100_000
_BATCHES = 6
_SPAN_MS = 600_000


def main() -> None:
    options = _options()
    console = Console(width=110)
    with kafka() as servers, session() as spark, Progress(console=console, transient=True) as progress:
        create_topics(servers, "out", "dead", "late", "control", "replicas")
        sizes = [options.rows // 10, options.rows]
        task = progress.add_task("", total=len(sizes))
        table = Table("stored rows", "batch of 100,000 rows", "state on disk", "local files", "workers' memory")
        times = []
        _with_state(spark, servers, sizes[0], "warm-up")  # the first run would pay for the JVM's compiler
        for size in sizes:
            progress.update(task, description=f"batches on {size:,} stored rows")
            row, seconds = _with_state(spark, servers, size, str(size))
            times.append(seconds)
            table.add_row(*row)
            progress.advance(task)
        console.print(table)
        console.print(f"batch time with {sizes[1]:,} rows: {times[1] / times[0]:.2f} x that with {sizes[0]:,}")
    console.print(machine())


def _with_state(spark: SparkSession, servers: Kafka, size: int, name: str) -> tuple[tuple[str, ...], float]:
    probe, build = f"probe-{name}", f"build-{name}"
    create_topics(servers, probe, build)
    preload(servers, build, size, size, None, _SPAN_MS, seed=0)
    with checkpoint() as folder, checkpoint() as cache:

        def run(rows_per_batch: int) -> list[float]:
            load = Workload(servers, probe, build, rows_per_batch)
            query = to_kafka(balajoin(spark, load, cache), client_options.spark_writer_options(servers), "out", folder)
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


def _size(folder: Path) -> int:
    return sum(file.stat().st_blocks * 512 for file in folder.rglob("*") if file.is_file())


def _workers_memory() -> int:
    """Memory of Spark's Python workers that is not a mapped file, which the page cache may drop at any time."""
    pids = subprocess.run(["pgrep", "-f", "balajoin.spark.daemon"], capture_output=True, text=True).stdout.split()
    return sum(_anonymous_memory(Path(f"/proc/{pid}/status").read_text().splitlines()) for pid in pids)


def _anonymous_memory(status: Sequence[str]) -> int:
    return next((int(line.split()[1]) * 1024 for line in status if line.startswith("RssAnon")), 0)


def _per_row(size: int, rows: int) -> str:
    return f"{size / 1e6:,.0f} MB, {size / rows:,.0f} B/row"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--rows",
        type=int,
        default=10_000_000,
        help="rows of the larger state; the smaller has a tenth (default: %(default)s)",
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
